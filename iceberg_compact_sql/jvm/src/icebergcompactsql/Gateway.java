package icebergcompactsql;

import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.sql.SparkSession;

/** Spark's own Py4J server, on loopback and with a secret, for the Python child alone. */
final class Gateway {
  private Gateway() {}

  /**
   * Started from a thread with nothing on it. Threads that serve Python descend from the one that starts the server and
   * would inherit the job group, execution id and session of whoever made the first call.
   */
  static Py4JServer start(SparkContext context) throws InterruptedException {
    CompletableFuture<Py4JServer> started = new CompletableFuture<>();
    Thread starter =
        new Thread(
            () -> {
              try {
                context.setLocalProperties(new Properties());
                SparkSession.clearActiveSession();
                Py4JServer server = new Py4JServer(context.getConf());
                server.start();
                started.complete(server);
              } catch (Throwable failure) {
                started.completeExceptionally(failure);
              }
            },
            "iceberg-compact-sql-gateway");
    starter.setDaemon(true);
    // Python names our classes, which only the loader of the jar knows.
    starter.setContextClassLoader(Gateway.class.getClassLoader());
    starter.start();
    try {
      return started.get();
    } catch (ExecutionException failure) {
      throw new PythonUnavailable("CALL needs a Py4J gateway, which cannot be started: " + failure.getCause());
    }
  }
}
