package org.apache.spark.sql.catalyst.parser;

import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Stands in for Spark's interface of this name while javac runs: the methods of all versions from 4.0 to 4.3 together,
 * so that one class implements each of them. It is not in the jar.
 */
public interface ParserInterface {
  LogicalPlan parsePlan(String sql) throws AnalysisException;

  /** Since 4.1. */
  LogicalPlan parsePlanWithParameters(String sql, ParameterContext parameters) throws AnalysisException;

  Expression parseExpression(String sql) throws AnalysisException;

  TableIdentifier parseTableIdentifier(String sql) throws AnalysisException;

  FunctionIdentifier parseFunctionIdentifier(String sql) throws AnalysisException;

  Seq<String> parseMultipartIdentifier(String sql) throws AnalysisException;

  /** Since 4.3. */
  TemporalIdentifier parseTemporalTableIdentifier(String sql) throws AnalysisException;

  LogicalPlan parseQuery(String sql) throws AnalysisException;

  StructType parseRoutineParam(String sql) throws AnalysisException;

  /** Since 4.3. */
  SqlStatementSplitResult splitStatements(String sql) throws AnalysisException;

  StructType parseTableSchema(String sql) throws AnalysisException;

  DataType parseDataType(String sql) throws AnalysisException;
}
