package org.pymq.interop;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Drives Apache RocketMQ's DefaultMessageStore from another process: one command, one JVM, one store.
 *
 * <pre>
 *   write  puts the messages read from stdin, then stops as told by --end
 *   read   prints everything the store holds, answers queries read from stdin, then stops as told by --end
 *   lock   opens the store and holds it until stdin ends, then stops as told by --end
 * </pre>
 *
 * Every line in and out is one JSON object; every line out has a "type". Flags:
 *
 * <pre>
 *   --store DIR          the store's root directory
 *   --set NAME=VALUE     a MessageStoreConfig or BrokerConfig property, by its broker.conf name; may repeat
 *   --end shutdown|halt|hang   clean shutdown (default); Runtime.halt, as a kill; or wait to be killed
 * </pre>
 *
 * A store that cannot be opened gives one line of type "failed" naming the stage (load or start), and exit status 3.
 * The failed store is not shut down: shutting it down would touch files that another process may own.
 */
public final class StoreTool {
    static final int EXIT_USAGE = 2;
    static final int EXIT_OPEN_FAILED = 3;
    static final int EXIT_INTERNAL = 4;

    private StoreTool() {
    }

    public static void main(String[] args) {
        // Libraries under the store print to System.out now and then; the protocol keeps stdout for itself.
        PrintStream protocol = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Wire wire = new Wire(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)), protocol);
        int status;
        try {
            status = run(args, wire);
        } catch (Throwable problem) {
            problem.printStackTrace();
            status = EXIT_INTERNAL;
        }
        wire.flush();
        // Not System.exit: the store's non-daemon threads and native hooks must not delay or change the outcome.
        Runtime.getRuntime().halt(status);
    }

    private static int run(String[] args, Wire wire) throws Exception {
        Options options;
        try {
            options = Options.parse(args);
        } catch (IllegalArgumentException problem) {
            System.err.println("StoreTool: " + problem.getMessage());
            return EXIT_USAGE;
        }
        OpenStore store;
        try {
            store = OpenStore.open(options);
        } catch (OpenStore.OpenFailed failed) {
            wire.send(Wire.line("failed").fluentPut("stage", failed.stage).fluentPut("message", failed.getMessage()));
            return EXIT_OPEN_FAILED;
        }
        switch (options.command) {
            case "write":
                new WriteCommand(store, wire).run();
                break;
            case "read":
                new ReadCommand(store, wire).run();
                break;
            default:
                wire.send(Wire.line("ready"));
                while (wire.receive() != null) {
                    continue;
                }
                break;
        }
        return finish(options, store, wire);
    }

    private static int finish(Options options, OpenStore store, Wire wire) throws InterruptedException {
        switch (options.end) {
            case "halt":
                return 0;
            case "hang":
                wire.send(Wire.line("hanging"));
                Thread.sleep(Long.MAX_VALUE);
                return EXIT_INTERNAL;
            default:
                boolean clean = store.shutdown();
                wire.send(Wire.line("closed").fluentPut("clean", clean));
                return 0;
        }
    }
}
