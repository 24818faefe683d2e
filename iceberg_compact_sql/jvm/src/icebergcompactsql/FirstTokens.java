package icebergcompactsql;

import java.util.ArrayList;
import java.util.List;

/**
 * A cheap look at a statement's first tokens: {@code CALL}, then the parts of a name. It only says whether to ask
 * Python; the grammar of a CALL is in Python alone.
 */
final class FirstTokens {
  private final String sql;
  private int at;

  private FirstTokens(String sql) {
    this.sql = sql;
  }

  /** The parts of the name that the statement calls, or an empty list for a statement of another kind. */
  static List<String> calledName(String sql) {
    return new FirstTokens(sql).readName();
  }

  private List<String> readName() {
    List<String> parts = new ArrayList<>();
    skipBlanks();
    String verb = readWord();
    if (!"CALL".equalsIgnoreCase(verb)) {
      return parts;
    }
    do {
      skipBlanks();
      String part = readPart();
      if (part.isEmpty()) {
        return new ArrayList<>();
      }
      parts.add(part);
      skipBlanks();
    } while (at < sql.length() && sql.charAt(at++) == '.');
    return parts;
  }

  private String readPart() {
    if (at >= sql.length() || sql.charAt(at) != '`') {
      return readWord();
    }
    StringBuilder part = new StringBuilder();
    for (at++; at < sql.length(); at++) {
      char c = sql.charAt(at);
      if (c == '`') {
        at++;
        if (at >= sql.length() || sql.charAt(at) != '`') {
          return part.toString();
        }
      }
      part.append(c);
    }
    return "";
  }

  private String readWord() {
    int start = at;
    while (at < sql.length() && Character.isJavaIdentifierPart(sql.charAt(at))) {
      at++;
    }
    return sql.substring(start, at);
  }

  /** Past white space, line comments and bracketed comments, which nest as they do in Spark. */
  private void skipBlanks() {
    while (at < sql.length()) {
      if (Character.isWhitespace(sql.charAt(at))) {
        at++;
      } else if (sql.startsWith("--", at)) {
        skipLine();
      } else if (sql.startsWith("/*", at)) {
        skipBrackets();
      } else {
        return;
      }
    }
  }

  /** A line comment ends at a line break, unless a backslash stands before it (Spark's rule). */
  private void skipLine() {
    while (at < sql.length() && (sql.charAt(at) != '\n' || sql.charAt(at - 1) == '\\')) {
      at++;
    }
  }

  private void skipBrackets() {
    int depth = 0;
    do {
      if (sql.startsWith("/*", at)) {
        depth++;
        at += 2;
      } else if (sql.startsWith("*/", at)) {
        depth--;
        at += 2;
      } else {
        at++;
      }
    } while (depth > 0 && at < sql.length());
  }
}
