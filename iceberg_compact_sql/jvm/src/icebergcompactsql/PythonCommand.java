package icebergcompactsql;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.api.python.PythonUtils;

/** Which Python runs the calls, and with what environment. */
final class PythonCommand {
  private static final String OURS = "spark.iceberg_compact_sql.python";
  private static final String DRIVER = "spark.pyspark.driver.python";
  private static final String WORKERS = "spark.pyspark.python";

  private PythonCommand() {}

  /**
   * The interpreter that Spark would use for a Python driver; where nothing is said, the one that the jar was installed
   * with, else {@code python3}.
   */
  static String interpreter(SparkConf conf) {
    for (String key : new String[] {OURS, DRIVER, WORKERS}) {
      if (conf.contains(key)) {
        return conf.get(key);
      }
    }
    String fromEnvironment = System.getenv("PYSPARK_PYTHON");
    if (fromEnvironment != null && !fromEnvironment.isEmpty()) {
      return fromEnvironment;
    }
    Path installedWith = interpreterBesideTheJar();
    return installedWith == null ? "python3" : installedWith.toString();
  }

  static ProcessBuilder processBuilder(SparkConf conf, String interpreter, Py4JServer server) {
    ProcessBuilder builder = new ProcessBuilder(interpreter, "-u", "-c", bootstrap());
    Map<String, String> environment = builder.environment();
    environment.put("PYSPARK_GATEWAY_PORT", Integer.toString(server.getListeningPort()));
    environment.put("PYSPARK_GATEWAY_SECRET", server.secret());
    // Spark's own Python code first: it speaks to a JVM of exactly its version.
    String given = environment.get("PYTHONPATH");
    String ofSpark = PythonUtils.sparkPythonPath();
    environment.put("PYTHONPATH", given == null || given.isEmpty() ? ofSpark : ofSpark + File.pathSeparator + given);
    if (conf.contains(WORKERS)) {
      environment.put("PYSPARK_PYTHON", conf.get(WORKERS));
    } else if (conf.get("spark.master", "").startsWith("local")) {
      // Workers of a local master are on this machine and need the packages that the child has.
      environment.putIfAbsent("PYSPARK_PYTHON", interpreter);
    }
    // The child is a classic client of this JVM, whatever mode the shell was started in.
    for (String name : new String[] {"SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}) {
      environment.remove(name);
    }
    environment.put("SPARK_API_MODE", "classic");
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    return builder;
  }

  /** {@code <prefix>/bin/python} for a jar in {@code <prefix>/lib/python3.x/site-packages/iceberg_compact_sql/jvm}. */
  private static Path interpreterBesideTheJar() {
    try {
      Path jar = Path.of(PythonCommand.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      Path prefix = jar.resolve("../../../../../..").normalize();
      Path interpreter = prefix.resolve("bin/python");
      return jar.getNameCount() > 6 && Files.isExecutable(interpreter) ? interpreter : null;
    } catch (URISyntaxException | RuntimeException notOnDisk) {
      return null;
    }
  }

  private static String bootstrap() {
    try (InputStream text = PythonCommand.class.getResourceAsStream("bootstrap.py.txt")) {
      return new String(text.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
  }
}
