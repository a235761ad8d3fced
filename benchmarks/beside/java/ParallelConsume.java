import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Confluent's Parallel Consumer on the work of dedup_consumer: BOOTSTRAP TOPIC GROUP TOTAL WARM_UP CONCURRENCY WORK_MS SECONDS.
 *
 * <p>The handler checks that the numbers of a key come in order, each once. The clock runs from the WARM_UPth record to the last.
 */
public final class ParallelConsume {
  static final ConcurrentHashMap<String, long[]> LATEST = new ConcurrentHashMap<>();
  static final AtomicLong HANDLED = new AtomicLong(), VIOLATIONS = new AtomicLong(), REPEATED = new AtomicLong();

  private ParallelConsume() {}

  /** Returns whether the record is a new one. Records of one key come here one after the other. */
  static boolean check(ConsumerRecord<String, byte[]> record) {
    long number = Long.parseLong(new String(record.value(), 0, 10, StandardCharsets.US_ASCII));
    long[] latest = LATEST.computeIfAbsent(record.key(), key -> new long[] {-1});
    synchronized (latest) {
      if (number <= latest[0]) {
        REPEATED.incrementAndGet();
        return false;
      }
      if (number == latest[0] + 1) latest[0] = number;
      else VIOLATIONS.incrementAndGet();
      return true;
    }
  }

  public static void main(String[] args) throws Exception {
    long total = Long.parseLong(args[3]), warmUp = Long.parseLong(args[4]), work = Long.parseLong(args[6]);
    Map<String, Object> kafka =
        Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed",
            "fetch.max.wait.ms", 100,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName());
    var options =
        ParallelConsumerOptions.<String, byte[]>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(Integer.parseInt(args[5]))
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
            .commitInterval(Duration.ofSeconds(1))
            .consumer(new KafkaConsumer<>(kafka))
            .build();
    AtomicLong began = new AtomicLong();
    double[] used = new double[1];
    CountDownLatch done = new CountDownLatch(1);
    ParallelStreamProcessor<String, byte[]> consumer = ParallelStreamProcessor.createEosStreamProcessor(options);
    consumer.subscribe(List.of(args[1]));
    consumer.poll(
        context -> {
          if (check(context.getSingleConsumerRecord())) {
            long handled = HANDLED.incrementAndGet();
            if (handled == warmUp) {
              used[0] = Used.processorSeconds();
              began.set(System.nanoTime());
            } else if (handled == total) done.countDown();
          }
          if (work > 0) {
            try {
              Thread.sleep(work);
            } catch (InterruptedException e) {
              Thread.currentThread().interrupt();
            }
          }
        });
    done.await(Long.parseLong(args[7]), TimeUnit.SECONDS);
    double seconds = (System.nanoTime() - began.get()) / 1e9, cpu = Used.processorSeconds() - used[0];
    long handled = HANDLED.get();
    consumer.closeDrainFirst(Duration.ofSeconds(20));
    System.out.printf(
        Locale.ROOT,
        "{\"handled\":%d,\"counted\":%d,\"seconds\":%.3f,\"cpu\":%.3f,\"violations\":%d,\"duplicates\":%d,\"peak_bytes\":%d}%n",
        handled, Math.max(0, handled - warmUp), seconds, cpu, VIOLATIONS.get(), REPEATED.get(), Used.peakBytes());
    System.out.flush();
    System.exit(0);
  }
}
