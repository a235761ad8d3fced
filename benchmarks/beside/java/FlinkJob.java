import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Flink in one JVM on the work of Dovecote's Spark jobs: sessions|dedup BOOTSTRAP INPUT OUTPUT WARM_UP RECORDS BACKEND FOLDER ROUND.
 *
 * <p>It reads what INPUT holds at the start, with a checkpoint a second, exactly once, and prints one JSON object. The clock runs
 * from the WARM_UPth record that the stateful operator takes to the last. Records of the last, still open transaction are in it, and
 * the commit of that transaction is not: closing_seconds has it, until the job has ended.
 */
public final class FlinkJob {
  static final int PARALLELISM = 2;
  static final long MOST_SECONDS = 300;
  /** The records that the stateful operators have taken. */
  static final LongAdder TAKEN = new LongAdder();

  private FlinkJob() {}

  static <T> KafkaSource<T> source(String bootstrap, String topic, String group, KafkaRecordDeserializationSchema<T> read) {
    return KafkaSource.<T>builder()
        .setBootstrapServers(bootstrap)
        .setTopics(topic)
        .setGroupId(group)
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setBounded(OffsetsInitializer.latest())
        .setDeserializer(read)
        .setProperty("isolation.level", "read_committed")
        .setProperty("max.poll.records", "5000")
        .build();
  }

  /** The producer has the settings of Dovecote's Spark jobs. */
  static <T> KafkaSink<T> sink(String bootstrap, String prefix, KafkaRecordSerializationSchema<T> write) {
    return KafkaSink.<T>builder()
        .setBootstrapServers(bootstrap)
        .setRecordSerializer(write)
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix(prefix)
        .setProperty("transaction.timeout.ms", "600000")
        .setProperty("linger.ms", "5")
        .setProperty("batch.size", "1000000")
        .setProperty("buffer.memory", "134217728")
        .setProperty("compression.type", "lz4")
        .build();
  }

  static Configuration settings(String backend, Path folder) throws Exception {
    Path files = Files.createDirectories(folder.resolve("files"));
    Configuration settings = new Configuration();
    settings.setString("state.backend.type", backend);
    settings.setString("execution.checkpointing.interval", "1s");
    settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    settings.setString("execution.checkpointing.incremental", "true");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", folder.resolve("checkpoints").toUri().toString());
    settings.setString("io.tmp.dirs", files.toString());
    settings.setString("restart-strategy.type", "none");
    settings.setString("taskmanager.numberOfTaskSlots", String.valueOf(PARALLELISM));
    settings.setString("taskmanager.memory.managed.size", "768m");
    settings.setString("taskmanager.memory.network.min", "128m");
    settings.setString("taskmanager.memory.network.max", "128m");
    // Its fastest ways: nothing is copied between operators, and no type falls back to Kryo.
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("pipeline.generic-types", "false");
    return settings;
  }

  public static void main(String[] args) throws Exception {
    String work = args[0], bootstrap = args[1], input = args[2], output = args[3], backend = args[6];
    long warmUp = Long.parseLong(args[4]), last = warmUp + Long.parseLong(args[5]), round = Long.parseLong(args[8]);
    StreamExecutionEnvironment flink =
        StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings(backend, Path.of(args[7])));
    if (work.equals("sessions")) FlinkSessions.build(flink, bootstrap, input, output);
    else FlinkDedup.build(flink, bootstrap, input, output, round);
    JobClient job = flink.executeAsync(work);
    var result = job.getJobExecutionResult();
    long began = 0, first = 0, ended = 0, deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(MOST_SECONDS);
    double used = 0;
    while (ended == 0) {
      long taken = TAKEN.sum();
      if (began == 0 && taken >= warmUp) {
        began = System.nanoTime();
        used = Used.processorSeconds();
        first = taken;
      }
      if (taken >= last) {
        ended = System.nanoTime();
        used = Used.processorSeconds() - used;
      } else if (result.isDone() || System.nanoTime() > deadline) {
        System.err.println("Flink has taken " + taken + " of " + last + " records");
        if (result.isDone()) result.get();
        Runtime.getRuntime().halt(1);
      }
      Thread.sleep(2);
    }
    result.get(MOST_SECONDS, TimeUnit.SECONDS);
    double closing = (System.nanoTime() - ended) / 1e9;
    System.out.printf(
        Locale.ROOT,
        "{\"records\":%d,\"seconds\":%.3f,\"cpu_seconds\":%.3f,\"closing_seconds\":%.3f,\"peak_bytes\":%d}%n",
        last - first, (ended - began) / 1e9, used, closing, Used.peakBytes());
    System.out.flush();
    // Its servers would take seconds to end, and there is nothing left to lose.
    Runtime.getRuntime().halt(0);
  }
}
