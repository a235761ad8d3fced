// Bento with the components that carry Kafka's records to an HTTP endpoint, and no others.
//
// IDLE_PER_HOST says how many connections its HTTP client keeps open between requests. Without it
// Go keeps two, and no setting of Bento's changes that: at 100 in flight it would connect anew for
// most requests.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/warpstreamlabs/bento/public/service"

	_ "github.com/warpstreamlabs/bento/public/components/io"
	_ "github.com/warpstreamlabs/bento/public/components/kafka"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
)

func main() {
	if given := os.Getenv("IDLE_PER_HOST"); given != "" {
		kept, err := strconv.Atoi(given)
		if err != nil {
			log.Fatalf("IDLE_PER_HOST must be a number: %v", err)
		}
		transport := http.DefaultTransport.(*http.Transport)
		transport.MaxIdleConns = 0
		transport.MaxIdleConnsPerHost = kept
	}
	service.RunCLI(context.Background())
}
