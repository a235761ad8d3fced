"""The shapes of rows between Python and the JVM."""
