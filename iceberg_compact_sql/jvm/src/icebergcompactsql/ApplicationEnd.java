package icebergcompactsql;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/** Ends the Python process together with the application that it serves. */
final class ApplicationEnd extends SparkListener {
  private final PythonChild child;

  ApplicationEnd(PythonChild child) {
    this.child = child;
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd end) {
    child.close();
  }
}
