package icebergcompactsql;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;

/**
 * One Python process and the lines between it and us: requests on its stdin, answers on its stdout, each a line of JSON
 * with an id. It belongs to one SparkContext. It ends when its stdin does, so that it never outlives this JVM.
 */
final class PythonChild {
  static final ObjectMapper JSON =
      new ObjectMapper().configure(JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS, true);
  private static final int PROTOCOL = 1;
  private static final String HELLO = "hello";
  private static final long PING_MS = 1000;

  final SparkContext context;
  private final String interpreter;
  private final Py4JServer server;
  private final Process process;
  private final Writer requests;
  private final Map<String, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
  private volatile long lastHeardNanos = System.nanoTime();
  private volatile boolean silent;

  private PythonChild(SparkContext context, String interpreter, Py4JServer server, Process process) {
    this.context = context;
    this.interpreter = interpreter;
    this.server = server;
    this.process = process;
    this.requests = new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8);
  }

  /** A child that has said hello; or an exception that says in one sentence what to do about it. */
  static PythonChild start(SparkContext context, long timeoutSeconds) throws InterruptedException {
    String interpreter = PythonCommand.interpreter(context.getConf());
    Py4JServer server = Gateway.start(context);
    PythonChild child;
    try {
      Process process = PythonCommand.processBuilder(context.getConf(), interpreter, server).start();
      child = new PythonChild(context, interpreter, server, process);
    } catch (IOException failure) {
      server.shutdown();
      throw new PythonUnavailable(
          "CALL needs Python, and '" + interpreter + "' cannot be started (" + failure.getMessage() + "): name an"
              + " interpreter with spark.pyspark.python or PYSPARK_PYTHON.");
    }
    boolean ready = false;
    try {
      CompletableFuture<JsonNode> hello = new CompletableFuture<>();
      child.waiting.put(HELLO, hello);
      child.listen();
      child.greet(hello, timeoutSeconds);
      ready = true;
    } finally {
      if (!ready) {
        child.close();
      }
    }
    return child;
  }

  boolean isAlive() {
    return process.isAlive() && !silent;
  }

  long pid() {
    return process.pid();
  }

  /** Sends a request; the future gets its answer, or a CallFailed when the process ends before it gave one. */
  CompletableFuture<JsonNode> send(ObjectNode request) {
    CompletableFuture<JsonNode> answer = new CompletableFuture<>();
    waiting.put(request.get("id").asText(), answer);
    if (!write(request) || !process.isAlive()) {
      abandon();
    }
    return answer;
  }

  void cancel(String id) {
    write(JSON.createObjectNode().put("op", "cancel").put("id", id));
  }

  /**
   * Waits for an answer for as long as the process shows life: it answers a ping every second whatever it is doing. One
   * that stays silent for longer than allowed is ended.
   */
  JsonNode await(CompletableFuture<JsonNode> answer, long silenceSeconds) throws InterruptedException, CallFailed {
    lastHeardNanos = System.nanoTime();
    while (true) {
      try {
        return answer.get(PING_MS, TimeUnit.MILLISECONDS);
      } catch (TimeoutException stillRunning) {
        if (System.nanoTime() - lastHeardNanos > TimeUnit.SECONDS.toNanos(silenceSeconds)) {
          silent = true;
          process.destroyForcibly();
          abandon();
        } else {
          write(JSON.createObjectNode().put("op", "ping").put("id", "ping"));
        }
      } catch (ExecutionException failure) {
        // Nothing else ever completes an answer with an exception.
        throw (CallFailed) failure.getCause();
      }
    }
  }

  /** Ends the process and the gateway; requests that still wait are answered with an error. */
  void close() {
    try {
      requests.close();
    } catch (IOException alreadyGone) {
      // Closing its stdin asks the process to end; one that has ended needs no asking.
    }
    process.destroy();
    server.shutdown();
  }

  private boolean write(ObjectNode request) {
    try {
      synchronized (requests) {
        requests.write(JSON.writeValueAsString(request) + "\n");
        requests.flush();
      }
      return true;
    } catch (IOException closed) {
      return false;
    }
  }

  private void listen() {
    Thread reader = new Thread(this::read, "iceberg-compact-sql-answers");
    reader.setDaemon(true);
    reader.start();
  }

  private void read() {
    try (BufferedReader answers =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = answers.readLine(); line != null; line = answers.readLine()) {
        lastHeardNanos = System.nanoTime();
        JsonNode answer = JSON.readTree(line);
        CompletableFuture<JsonNode> waiter = waiting.remove(answer.path("id").asText(HELLO));
        if (waiter != null) {
          waiter.complete(answer);
        }
      }
    } catch (IOException broken) {
      process.destroyForcibly();
    }
    abandon();
  }

  /** Nobody will answer any more: says so to everyone who waits. */
  private void abandon() {
    for (String id : waiting.keySet()) {
      CompletableFuture<JsonNode> waiter = waiting.remove(id);
      if (waiter != null) {
        waiter.completeExceptionally(id.equals(HELLO) ? new PythonUnavailable(startFailure()) : lost());
      }
    }
  }

  private CallFailed lost() {
    return CallFailed.python(
        "the Python process behind CALL (" + interpreter + ", pid " + pid() + ") " + fate() + " before it answered, and"
            + " its Spark jobs were cancelled. Whether the call changed its table is not known: look at the table's"
            + " snapshots, then run the call again.");
  }

  private String startFailure() {
    return "CALL needs Python, and '" + interpreter + "' " + fate() + " while it was starting: its own words are on the"
        + " standard error of this program.";
  }

  private String fate() {
    if (silent) {
      return "stopped answering and was ended";
    }
    try {
      return process.waitFor(1, TimeUnit.SECONDS) ? "ended with exit code " + process.exitValue() : "closed its output";
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      return "closed its output";
    }
  }

  private void greet(CompletableFuture<JsonNode> hello, long timeoutSeconds) throws InterruptedException {
    JsonNode facts;
    try {
      facts = hello.get(timeoutSeconds, TimeUnit.SECONDS);
    } catch (TimeoutException late) {
      process.destroyForcibly();
      throw new PythonUnavailable(
          "CALL needs Python, and '" + interpreter + "' did not answer within " + timeoutSeconds + " seconds: try"
              + " again, or raise spark.iceberg_compact_sql.python_start_timeout.");
    } catch (ExecutionException failure) {
      throw (PythonUnavailable) failure.getCause();
    }
    String python = facts.path("python").asText(interpreter);
    String install = python + " -m pip install iceberg-compact-sql";
    if (facts.has("missing")) {
      throw new PythonUnavailable(
          "CALL needs the Python package iceberg-compact-sql, and " + python + " has no module '"
              + facts.get("missing").asText() + "': run '" + install + "', or name another interpreter with"
              + " spark.pyspark.python or PYSPARK_PYTHON.");
    }
    if (facts.has("broken")) {
      throw new PythonUnavailable(
          "CALL needs the Python package iceberg-compact-sql, which " + python + " (Python "
              + facts.path("version").asText() + ") cannot load (" + facts.get("broken").asText() + "): run '" + install
              + "' with Python 3.10 or newer.");
    }
    if (facts.path("protocol").asInt() != PROTOCOL) {
      throw new PythonUnavailable(
          "the jar and the Python package iceberg-compact-sql of " + python + " are of different versions: pass the jar"
              + " that 'iceberg-compact-sql jar' of that interpreter prints.");
    }
  }
}
