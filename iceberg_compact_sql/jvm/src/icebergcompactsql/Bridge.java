package icebergcompactsql;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.SparkSession;
import scala.Option;

/**
 * Asks Python about calls and has it run them, in the caller's session and under the caller's job group. There is one
 * Python process for a SparkContext, started at the first call; one that died is replaced at the next call.
 */
public final class Bridge {
  private static final String SETTING = "spark.iceberg_compact_sql.";
  private static final String JOB_TAGS = "spark.job.tags";
  private static final long STOPPING_SECONDS = 10;

  private static final Map<String, Caller> CALLERS = new ConcurrentHashMap<>();
  private static final AtomicLong SEQUENCE = new AtomicLong();
  private static PythonChild child;

  private Bridge() {}

  /**
   * Called from Python: the session of a request under way. The JVM thread that serves the Python thread becomes one of
   * the caller's from here on.
   */
  public static SparkSession enter(String id) {
    Caller caller = CALLERS.get(id);
    caller.session.sparkContext().setLocalProperties(caller.properties);
    SparkSession.setActiveSession(caller.session);
    Thread.currentThread().setContextClassLoader(caller.loader);
    return caller.session;
  }

  /** Called from Python: the JVM's default session, or null. */
  public static SparkSession defaultSession() {
    Option<SparkSession> session = SparkSession.getDefaultSession();
    return session.isDefined() ? session.get() : null;
  }

  /** The columns that a call will answer with, or null for a call that is not ours. Runs nothing. */
  static Claim ask(SparkSession session, String sql) throws CallFailed {
    JsonNode answer;
    try {
      answer = call(session, "ask", sql);
    } catch (CallFailed failure) {
      if (!CallFailed.PYTHON.equals(failure.getCondition())) {
        throw failure;
      }
      // The process was lost; nothing was done yet, so that a new one may be asked.
      answer = call(session, "ask", sql);
    }
    return answer.path("claimed").asBoolean() ? Claim.of(answer.get("columns")) : null;
  }

  /** Runs a call once and gives its rows. */
  static JsonNode run(SparkSession session, String sql) throws CallFailed {
    try {
      return call(session, "run", sql).get("rows");
    } catch (PythonUnavailable failure) {
      throw failure.forUser();
    }
  }

  private static JsonNode call(SparkSession session, String operation, String sql) throws CallFailed {
    String id = "call-" + SEQUENCE.incrementAndGet();
    String tag = "iceberg-compact-sql-" + id;
    ObjectNode request = PythonChild.JSON.createObjectNode().put("op", operation).put("id", id).put("sql", sql);
    CALLERS.put(id, new Caller(session, tag));
    try {
      return exchange(session, request, tag);
    } finally {
      CALLERS.remove(id);
    }
  }

  private static JsonNode exchange(SparkSession session, ObjectNode request, String tag) throws CallFailed {
    SparkContext context = session.sparkContext();
    String id = request.get("id").asText();
    PythonChild python;
    try {
      python = living(session);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw CallFailed.cancelled("CALL was cancelled before it began.");
    }
    AtomicBoolean unwanted = new AtomicBoolean();
    Runnable onInterrupt =
        () -> {
          unwanted.set(true);
          stop(python, context, id, tag);
        };
    // Listening first: once Python has the request, an interrupt must find somebody who passes it on.
    try (ShellInterrupts ignored = ShellInterrupts.during(onInterrupt)) {
      CompletableFuture<JsonNode> answer = python.send(request);
      if (unwanted.get()) {
        stop(python, context, id, tag);
      }
      return settle(python, answer, session, () -> stop(python, context, id, tag));
    } catch (CallFailed failure) {
      if (CallFailed.PYTHON.equals(failure.getCondition())) {
        context.cancelJobsWithTag(tag);
      }
      throw failure;
    }
  }

  /** Waits for the answer; a caller whose thread is interrupted has the call stopped, and still hears how it ended. */
  private static JsonNode settle(
      PythonChild python, CompletableFuture<JsonNode> answer, SparkSession session, Runnable stop) throws CallFailed {
    try {
      return successful(python.await(answer, seconds(session, "python_silence_timeout", "60s")));
    } catch (InterruptedException interrupted) {
      stop.run();
      try {
        return successful(lastWord(answer));
      } finally {
        Thread.currentThread().interrupt();
      }
    }
  }

  private static void stop(PythonChild python, SparkContext context, String id, String tag) {
    python.cancel(id);
    context.cancelJobsWithTag(tag);
  }

  /** A cancelled call has a little time to say how it ended: it may have been past its commit. */
  private static JsonNode lastWord(CompletableFuture<JsonNode> answer) throws CallFailed {
    try {
      return answer.get(STOPPING_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException | TimeoutException | ExecutionException noWord) {
      throw CallFailed.cancelled(
          "CALL was cancelled and is still stopping. Whether it changed its table is not known yet: look at the table's"
              + " snapshots.");
    }
  }

  private static JsonNode successful(JsonNode answer) throws CallFailed {
    if (answer.has("error")) {
      throw CallFailed.of(answer);
    }
    return answer;
  }

  private static synchronized PythonChild living(SparkSession session) throws InterruptedException {
    SparkContext context = session.sparkContext();
    if (child != null && child.isAlive() && child.context == context) {
      return child;
    }
    if (child != null) {
      child.close();
      child = null;
    }
    PythonChild started = PythonChild.start(context, seconds(session, "python_start_timeout", "60s"));
    context.addSparkListener(new ApplicationEnd(started));
    child = started;
    return started;
  }

  private static long seconds(SparkSession session, String setting, String otherwise) {
    return JavaUtils.timeStringAsSec(session.conf().get(SETTING + setting, otherwise));
  }

  /** Who called: the session, and the thread's job group, description, tags and pool, so that our jobs are theirs. */
  private static final class Caller {
    final SparkSession session;
    final Properties properties = new Properties();
    final ClassLoader loader = Thread.currentThread().getContextClassLoader();

    Caller(SparkSession session, String tag) {
      this.session = session;
      Properties given = session.sparkContext().getLocalProperties();
      for (String name : given.stringPropertyNames()) {
        // A query of Python's is an execution of its own below the caller's root, not a part of the CALL's.
        if (!name.equals("spark.sql.execution.id") && !name.startsWith("spark.rdd.scope")) {
          properties.setProperty(name, given.getProperty(name));
        }
      }
      String tags = given.getProperty(JOB_TAGS);
      properties.setProperty(JOB_TAGS, tags == null || tags.isEmpty() ? tag : tags + "," + tag);
    }
  }
}
