package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.common.message.Message;

/** Observations in words that do not depend on the machine. */
final class Facts {
    /** A clock's grain: what was sent within it may look earlier than it was. */
    private static final long GRAIN_MS = 20;
    /** Slack for a machine of two busy cores. Lateness itself is measured elsewhere. */
    private static final long SLACK_MS = 2_500;

    private static final List<String> USUAL =
        List.of("CLUSTER", "KEYS", "MSG_REGION", "TAGS", "TRACE_ON", "UNIQ_KEY", "WAIT");
    private static final List<String> MADE_BY_THE_CONSUMER = List.of("CONSUME_START_TIME", "MAX_OFFSET", "MIN_OFFSET");

    private Facts() {
    }

    static JSONObject of(Object... pairs) {
        JSONObject facts = new JSONObject(true);
        for (int i = 0; i < pairs.length; i += 2) {
            facts.put((String) pairs[i], pairs[i + 1]);
        }
        return facts;
    }

    /** Whether something that was due at *dueMs* came early, in time or late. */
    static String punctuality(long atMs, long dueMs) {
        return punctuality(atMs, dueMs, 0);
    }

    /** The same where coming *earlyMs* before the time is not early. */
    static String punctuality(long atMs, long dueMs, long earlyMs) {
        if (atMs < dueMs - GRAIN_MS - earlyMs) {
            return "early";
        }
        return atMs <= dueMs + SLACK_MS ? "in time" : "late";
    }

    static <T, R> List<R> each(List<T> items, Function<T, R> fact) {
        return items.stream().map(fact).collect(Collectors.toList());
    }

    static <T, R extends Comparable<R>> List<R> sorted(List<T> items, Function<T, R> fact) {
        return items.stream().map(fact).sorted().collect(Collectors.toList());
    }

    /** The names of a message's properties beyond those that every message has; one of these that lacks, with a minus. */
    static List<String> properties(Message message) {
        Set<String> names = new TreeSet<>(message.getProperties().keySet());
        names.removeAll(MADE_BY_THE_CONSUMER);
        for (String usual : USUAL) {
            if (!names.remove(usual)) {
                names.add("-" + usual);
            }
        }
        return new ArrayList<>(names);
    }

    interface Attempt {
        void run() throws Exception;
    }

    /** "ok", or the exception's class with the broker's code, as a program that catches it would look at. */
    static String outcome(Attempt attempt) {
        try {
            attempt.run();
            return "ok";
        } catch (Exception problem) {
            return describe(problem);
        }
    }

    static String describe(Throwable problem) {
        return problem.getClass().getSimpleName() + " " + code(problem);
    }

    /** The broker's code wherever it is in the chain of causes, or the client's own. */
    static int code(Throwable problem) {
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return ((MQBrokerException) cause).getResponseCode();
            }
        }
        if (problem instanceof MQClientException) {
            return ((MQClientException) problem).getResponseCode();
        }
        return problem instanceof RequestTimeoutException ? ((RequestTimeoutException) problem).getResponseCode() : 0;
    }
}
