package icebergcompactsql;

import com.fasterxml.jackson.databind.JsonNode;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** That Python takes a call, and the typed columns of its answer. */
final class Claim {
  final StructType schema;

  private Claim(StructType schema) {
    this.schema = schema;
  }

  static Claim of(JsonNode columns) throws CallFailed {
    StructType schema = new StructType();
    for (JsonNode column : columns) {
      schema = schema.add(column.get(0).asText(), type(column.get(1).asText()), true);
    }
    return new Claim(schema);
  }

  /** Rows of values that match the columns; an answer of another width is a fault in the package. */
  List<Row> rows(JsonNode answer) throws CallFailed {
    StructField[] fields = schema.fields();
    List<Row> rows = new ArrayList<>(answer.size());
    for (JsonNode values : answer) {
      if (values.size() != fields.length) {
        throw new CallFailed(CallFailed.FAILED, "XX000", "the answer does not have the columns that were announced.");
      }
      Object[] row = new Object[fields.length];
      for (int i = 0; i < fields.length; i++) {
        row[i] = value(values.get(i), fields[i].dataType());
      }
      rows.add(RowFactory.create(row));
    }
    return rows;
  }

  private static DataType type(String name) throws CallFailed {
    switch (name) {
      case "int":
        return DataTypes.IntegerType;
      case "bigint":
        return DataTypes.LongType;
      case "double":
        return DataTypes.DoubleType;
      case "boolean":
        return DataTypes.BooleanType;
      case "timestamp":
        return DataTypes.TimestampType;
      case "string":
        return DataTypes.StringType;
      default:
        throw new CallFailed(CallFailed.FAILED, "XX000", "the answer has a column of the unknown type '" + name + "'.");
    }
  }

  private static Object value(JsonNode value, DataType type) {
    if (value.isNull()) {
      return null;
    }
    if (type.equals(DataTypes.IntegerType)) {
      return value.intValue();
    }
    if (type.equals(DataTypes.LongType)) {
      return value.longValue();
    }
    if (type.equals(DataTypes.DoubleType)) {
      return value.doubleValue();
    }
    if (type.equals(DataTypes.BooleanType)) {
      return value.booleanValue();
    }
    if (type.equals(DataTypes.TimestampType)) {
      return Timestamp.from(Instant.EPOCH.plus(value.longValue(), ChronoUnit.MICROS));
    }
    return value.asText();
  }
}
