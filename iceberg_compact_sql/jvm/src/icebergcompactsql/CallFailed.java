package icebergcompactsql;

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
