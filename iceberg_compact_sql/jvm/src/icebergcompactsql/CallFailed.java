package icebergcompactsql;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * What a user sees when a CALL is refused or fails: the message that the Python door gives, with condition and
 * SQLSTATE. It is an AnalysisException, which the shell, dbt and Connect's clients show without a Java stack trace.
 */
final class CallFailed extends AnalysisException {
  static final String FAILED = "ICEBERG_COMPACT_FAILED";
  static final String PYTHON = "ICEBERG_COMPACT_PYTHON";
  static final String CANCELLED = "ICEBERG_COMPACT_CANCELLED";
  private static final long serialVersionUID = 1L;

  private final String condition;
  private final String sqlState;
  private final String text;

  CallFailed(String condition, String sqlState, String message) {
    super(
        "[" + condition + "] " + message + " SQLSTATE: " + sqlState,
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.apply(condition),
        Map$.MODULE$.<String, String>empty(),
        new QueryContext[0]);
    this.condition = condition;
    this.sqlState = sqlState;
    this.text = message;
    // Where in the jar it came from helps nobody: Connect's clients print every frame.
    setStackTrace(new StackTraceElement[0]);
  }

  /**
   * The failure that an answer tells. A call in Iceberg's form throws what Iceberg's own procedure throws, with exactly
   * its message; our own message is the cause then.
   */
  static CallFailed of(JsonNode answer) {
    String condition = answer.path("condition").asText(FAILED);
    String sqlState = answer.path("sql_state").asText("38000");
    String kind = answer.path("iceberg_kind").asText("");
    String message = answer.path("iceberg_message").asText("");
    CallFailed ours = new CallFailed(condition, sqlState, answer.get("error").asText());
    switch (kind) {
      case "AnalysisException":
        return new CallFailed(condition, sqlState, message);
      case "IllegalArgumentException":
        throw new IllegalArgumentException(message, ours);
      case "ValidationException":
        throw validation(message, ours);
      case "RuntimeException":
        throw new RuntimeException(message, ours);
      default:
        return ours;
    }
  }

  /** Iceberg's own exception where its jar is there. */
  private static RuntimeException validation(String message, CallFailed ours) {
    try {
      ClassLoader loader = Thread.currentThread().getContextClassLoader();
      return (RuntimeException)
          Class.forName("org.apache.iceberg.exceptions.ValidationException", true, loader)
              .getConstructor(Throwable.class, String.class, Object[].class)
              .newInstance(ours, "%s", new Object[] {message});
    } catch (ReflectiveOperationException withoutIceberg) {
      return new IllegalArgumentException(message, ours);
    }
  }

  /** The Python process could not be started, died, or does not answer. */
  static CallFailed python(String message) {
    return new CallFailed(PYTHON, "58000", message);
  }

  static CallFailed cancelled(String message) {
    return new CallFailed(CANCELLED, "HY008", message);
  }

  @Override
  public String getCondition() {
    return condition;
  }

  @Override
  public String getSqlState() {
    return sqlState;
  }

  /** Our conditions are not in Spark's own list, so that the template is the text itself. */
  @Override
  public String getDefaultMessageTemplate() {
    return text;
  }
}
