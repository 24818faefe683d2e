package icebergcompactsql;

import org.apache.hadoop.hive.common.HiveInterruptCallback;
import org.apache.hadoop.hive.common.HiveInterruptUtils;

/**
 * Ctrl-C in spark-sql. The shell cancels Spark's jobs and interrupts no thread, so that a call which is planning or
 * committing in Python would not notice; it does tell those who have registered with Hive's shell support.
 */
final class ShellInterrupts implements AutoCloseable {
  private final Object callback;

  private ShellInterrupts(Object callback) {
    this.callback = callback;
  }

  static ShellInterrupts during(Runnable onInterrupt) {
    try {
      HiveInterruptCallback callback = onInterrupt::run;
      return new ShellInterrupts(HiveInterruptUtils.add(callback));
    } catch (LinkageError sparkWithoutHive) {
      return new ShellInterrupts(null);
    }
  }

  @Override
  public void close() {
    if (callback != null) {
      HiveInterruptUtils.remove((HiveInterruptCallback) callback);
    }
  }
}
