package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONObject;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Apache RocketMQ's Java clients under remote control: many producers and consumers in one JVM.
 *
 * A request is a line {"id": n, "op": "...", ...}; its answer is {"id": n, ...} or {"id": n, "error": "..."}.
 * What consumers receive comes between the answers, as lines {"event": "received", "consumer": name, "messages": [...]}.
 *
 * <pre>
 *   startProducer  name, group, namesrv, vip            send      producer, mode, messages   (see Producers)
 *   startPush      name, group, namesrv, topic, expression, sql (instead of the expression)
 *   startLitePull  name, group, namesrv, topic, expression, sql, autoCommit
 *   poll           consumer, timeoutMs                  commit    consumer
 *   queues         consumer                             close     name
 *   admin          arguments: a command line of mqadmin
 * </pre>
 *
 * Requests run at once, each on a thread of its own. The end of input closes everything and ends the process.
 */
public final class ClientTool {
    private final Wire wire = new Wire();
    private final Producers producers = new Producers();
    private final Consumers consumers = new Consumers(wire);
    private final Admin admin = new Admin();

    private ClientTool() {
    }

    public static void main(String[] args) throws Exception {
        ClientTool tool = new ClientTool();
        // The clients and their libraries print now and then; the protocol keeps stdout for itself.
        System.setOut(System.err);
        ExecutorService pool = Executors.newCachedThreadPool();
        JSONObject request = tool.wire.receive();
        while (request != null) {
            JSONObject current = request;
            pool.execute(() -> tool.answer(current));
            request = tool.wire.receive();
        }
        tool.consumers.closeAll();
        tool.producers.closeAll();
        Runtime.getRuntime().halt(0);
    }

    private void answer(JSONObject request) {
        JSONObject answer;
        try {
            answer = serve(request);
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer = new JSONObject().fluentPut("error", problem.toString());
        }
        wire.send(answer.fluentPut("id", request.getInteger("id")));
    }

    private JSONObject serve(JSONObject request) throws Exception {
        switch (request.getString("op")) {
            case "startProducer":
                return producers.start(request);
            case "send":
                return producers.send(request);
            case "startPush":
                return consumers.startPush(request);
            case "startLitePull":
                return consumers.startLitePull(request);
            case "poll":
                return consumers.poll(request);
            case "commit":
                return consumers.commit(request);
            case "queues":
                return consumers.queues(request);
            case "close":
                consumers.close(request.getString("name"));
                producers.close(request.getString("name"));
                return new JSONObject();
            case "admin":
                return admin.run(request);
            default:
                throw new IllegalArgumentException("no such op: " + request.getString("op"));
        }
    }
}
