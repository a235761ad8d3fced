import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** The processor time and the memory that this process has used. */
final class Used {
  private Used() {}

  static double processorSeconds() {
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime() / 1e9;
  }

  static long peakBytes() throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/self/status")))
      if (line.startsWith("VmHWM:")) return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
    return 0;
  }
}
