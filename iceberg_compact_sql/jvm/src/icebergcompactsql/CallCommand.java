package icebergcompactsql;

import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A CALL as a runnable command with typed columns: Spark runs such a command once, eagerly, in every front end, and
 * keeps its rows.
 */
public final class CallCommand extends ExternalCommandExecutor {
  private final Answer answer;
  private final String sql;

  /** Spark copies a plan's node by calling this constructor with the elements of the superclass. */
  public CallCommand(ExternalCommandRunner answer, String sql, Map<String, String> options) {
    super(answer, sql, options);
    this.answer = (Answer) answer;
    this.sql = sql;
  }

  static CallCommand of(String sql, Claim claim) {
    return new CallCommand(new Answer(claim), sql, Map$.MODULE$.<String, String>empty());
  }

  @Override
  @SuppressWarnings("rawtypes")
  public Seq output() {
    return answer.attributes;
  }

  @Override
  @SuppressWarnings("rawtypes")
  public Seq run(SparkSession session) throws CallFailed {
    List<Row> rows = answer.claim.rows(Bridge.run(session, sql));
    return CollectionConverters.asScala(rows).toSeq();
  }

  /** What the command answers with; carried in the superclass's first element, so that a copy keeps its attributes. */
  private static final class Answer implements ExternalCommandRunner {
    final Claim claim;
    final Seq<?> attributes;

    Answer(Claim claim) {
      this.claim = claim;
      this.attributes = DataTypeUtils.toAttributes(claim.schema);
    }

    @Override
    public String[] executeCommand(String command, CaseInsensitiveStringMap options) {
      throw new IllegalStateException("the command runs itself");
    }

    @Override
    public String toString() {
      return "iceberg_compact_sql";
    }
  }
}
