import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.vertx.VertxParallelEoSStreamProcessor;
import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.ext.web.client.HttpRequest;
import io.vertx.ext.web.client.HttpResponse;
import io.vertx.ext.web.client.WebClient;
import io.vertx.ext.web.client.WebClientOptions;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Confluent's Parallel Consumer with Vert.x as a pusher, in order per key and signed: BOOTSTRAP TOPIC URL IN_FLIGHT SECRET.
 *
 * <p>Each request is a CloudEvent in binary mode, signed as Standard Webhooks say. What is not answered with a 2xx is tried again.
 */
public final class ParallelPush {
  private ParallelPush() {}

  static Mac mac(byte[] key) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      return mac;
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  public static void main(String[] args) throws Exception {
    String topic = args[1], url = args[2];
    int inFlight = Integer.parseInt(args[3]);
    byte[] key = Base64.getDecoder().decode(args[4].substring("whsec_".length()));
    ThreadLocal<Mac> macs = ThreadLocal.withInitial(() -> mac(key));
    Map<String, Object> kafka =
        Map.of(
            "bootstrap.servers", args[0],
            "group.id", topic,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed",
            "fetch.max.wait.ms", 100,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName());
    Vertx vertx = Vertx.vertx(new VertxOptions().setEventLoopPoolSize(1));
    WebClient client =
        WebClient.create(
            vertx, new WebClientOptions().setMaxPoolSize(inFlight).setKeepAlive(true).setTcpNoDelay(true).setUserAgentEnabled(false));
    var options =
        ParallelConsumerOptions.<String, byte[]>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(inFlight)
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
            .commitInterval(Duration.ofSeconds(1))
            .consumer(new KafkaConsumer<>(kafka))
            .build();
    var consumer = new VertxParallelEoSStreamProcessor<String, byte[]>(vertx, client, options);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> consumer.closeDontDrainFirst(Duration.ofSeconds(10))));
    consumer.subscribe(List.of(topic));
    consumer.vertxFuture(
        context -> {
          ConsumerRecord<String, byte[]> record = context.getSingleConsumerRecord();
          HttpRequest<Buffer> request = client.postAbs(url).timeout(15_000);
          String id = "";
          for (Header each : record.headers()) {
            String value = new String(each.value(), StandardCharsets.UTF_8);
            if (each.key().equals("ce_id")) id = value;
            request.putHeader(each.key().replace('_', '-'), value);
          }
          String time = String.valueOf(System.currentTimeMillis() / 1000);
          Mac mac = macs.get();
          mac.update((id + "." + time + ".").getBytes(StandardCharsets.UTF_8));
          String signature = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(record.value()));
          request.putHeader("webhook-id", id).putHeader("webhook-timestamp", time).putHeader("webhook-signature", signature);
          return request.sendBuffer(Buffer.buffer(record.value())).compose(ParallelPush::judged);
        });
    Thread.currentThread().join();
  }

  static Future<HttpResponse<Buffer>> judged(HttpResponse<Buffer> answer) {
    if (answer.statusCode() / 100 == 2) return Future.succeededFuture(answer);
    return Future.failedFuture("the answer is " + answer.statusCode());
  }
}
