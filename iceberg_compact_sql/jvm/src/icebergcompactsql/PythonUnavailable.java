package icebergcompactsql;

/** There is no Python process that could answer; nothing was asked of it yet. */
final class PythonUnavailable extends RuntimeException {
  private static final long serialVersionUID = 1L;

  PythonUnavailable(String message) {
    super(message);
  }

  CallFailed forUser() {
    return CallFailed.python(getMessage());
  }
}
