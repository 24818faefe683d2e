package icebergcompactsql;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlStatementSplitResult;
import org.apache.spark.sql.catalyst.parser.TemporalIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * A session's parser with our CALLs taken out: a CALL of one of our names is put to Python, and becomes a command when
 * Python claims it. Everything else reaches the parser that was there before, unchanged, and its exceptions come back
 * as they are. Iceberg finds its own parser through the field {@code delegate}.
 */
final class CallParser implements ParserInterface {
  private static final Set<String> NAMES = readNames();

  private final SparkSession session;
  private final ParserInterface delegate;

  CallParser(SparkSession session, ParserInterface delegate) {
    this.session = session;
    this.delegate = delegate;
  }

  @Override
  public LogicalPlan parsePlan(String sql) throws AnalysisException {
    LogicalPlan ours = claimed(sql, null);
    return ours == null ? delegate.parsePlan(sql) : ours;
  }

  @Override
  public LogicalPlan parsePlanWithParameters(String sql, ParameterContext parameters) throws AnalysisException {
    LogicalPlan ours = claimed(sql, parameters);
    return ours == null ? delegate.parsePlanWithParameters(sql, parameters) : ours;
  }

  /** The command for a call that Python claims, or null for a statement that is Spark's. */
  private LogicalPlan claimed(String sql, ParameterContext parameters) throws CallFailed {
    List<String> name = FirstTokens.calledName(sql);
    if (name.isEmpty() || !NAMES.contains(name.get(name.size() - 1).toLowerCase(Locale.ROOT))) {
      return null;
    }
    // Spark's parser fills in ${variables} and parameters itself, deeper down than we get.
    String text = new VariableSubstitution().substitute(sql);
    if (parameters != null) {
      text = ParameterHandler.substituteParameters(text, parameters)._1();
    }
    try {
      Claim claim = Bridge.ask(session, text);
      return claim == null ? null : (LogicalPlan) (Object) CallCommand.of(text, claim);
    } catch (PythonUnavailable failure) {
      if (name.size() > 1) {
        // Another extension's procedure of the same name must work where our Python package is missing.
        return null;
      }
      throw failure.forUser();
    }
  }

  @Override
  public Expression parseExpression(String sql) throws AnalysisException {
    return delegate.parseExpression(sql);
  }

  @Override
  public TableIdentifier parseTableIdentifier(String sql) throws AnalysisException {
    return delegate.parseTableIdentifier(sql);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String sql) throws AnalysisException {
    return delegate.parseFunctionIdentifier(sql);
  }

  @Override
  public Seq<String> parseMultipartIdentifier(String sql) throws AnalysisException {
    return delegate.parseMultipartIdentifier(sql);
  }

  @Override
  public TemporalIdentifier parseTemporalTableIdentifier(String sql) throws AnalysisException {
    return delegate.parseTemporalTableIdentifier(sql);
  }

  @Override
  public LogicalPlan parseQuery(String sql) throws AnalysisException {
    return delegate.parseQuery(sql);
  }

  @Override
  public StructType parseRoutineParam(String sql) throws AnalysisException {
    return delegate.parseRoutineParam(sql);
  }

  @Override
  public SqlStatementSplitResult splitStatements(String sql) throws AnalysisException {
    return delegate.splitStatements(sql);
  }

  @Override
  public StructType parseTableSchema(String sql) throws AnalysisException {
    return delegate.parseTableSchema(sql);
  }

  @Override
  public DataType parseDataType(String sql) throws AnalysisException {
    return delegate.parseDataType(sql);
  }

  private static Set<String> readNames() {
    try (BufferedReader names =
        new BufferedReader(
            new InputStreamReader(
                CallParser.class.getResourceAsStream("procedure-names.txt"), StandardCharsets.UTF_8))) {
      return names.lines().collect(Collectors.toSet());
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
  }
}
