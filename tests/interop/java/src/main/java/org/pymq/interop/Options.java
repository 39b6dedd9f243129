package org.pymq.interop;

import java.util.List;
import java.util.Properties;

/** The command line, checked: an unknown word is an error, never ignored. */
final class Options {
    private static final List<String> COMMANDS = List.of("write", "read", "lock");
    private static final List<String> ENDS = List.of("shutdown", "halt", "hang");

    final String command;
    String store;
    String end = "shutdown";
    final Properties settings = new Properties();

    private Options(String command) {
        this.command = command;
    }

    static Options parse(String[] args) {
        if (args.length == 0 || !COMMANDS.contains(args[0])) {
            throw new IllegalArgumentException("the first argument is one of " + COMMANDS);
        }
        Options options = new Options(args[0]);
        for (int index = 1; index < args.length; index += 2) {
            if (index + 1 == args.length) {
                throw new IllegalArgumentException(args[index] + " wants a value");
            }
            options.take(args[index], args[index + 1]);
        }
        if (options.store == null) {
            throw new IllegalArgumentException("--store is required");
        }
        return options;
    }

    private void take(String name, String value) {
        switch (name) {
            case "--store":
                store = value;
                break;
            case "--end":
                if (!ENDS.contains(value)) {
                    throw new IllegalArgumentException("--end is one of " + ENDS);
                }
                end = value;
                break;
            case "--set":
                int equals = value.indexOf('=');
                if (equals <= 0) {
                    throw new IllegalArgumentException("--set wants NAME=VALUE, not " + value);
                }
                settings.setProperty(value.substring(0, equals), value.substring(equals + 1));
                break;
            default:
                throw new IllegalArgumentException("unknown flag " + name);
        }
    }
}
