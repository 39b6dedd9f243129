package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import org.pymq.interop.clients.Wire;

/**
 * What RocketMQ's users rely on, one named scenario each, played with Apache's own Java client in one JVM.
 *
 * <pre>
 *   scenario  name, namesrv, broker, brokerName     its facts, or {"paused": true} when the broker is to be restarted
 *   resume    scenario: the id of a paused one      its facts
 *   names                                           all names
 * </pre>
 *
 * Scenarios run side by side, each with topics and groups of its own: most of them only wait. A fact is something that
 * any broker must show alike: a count, an order, a property, a code. Times are facts as "early", "in time" or "late".
 */
public final class ScenarioTool {
    private final Wire wire = new Wire();
    private final Map<String, Scenario> scenarios = new TreeMap<>();
    private final Map<Integer, World> paused = new ConcurrentHashMap<>();
    private final Semaphore places;

    private ScenarioTool(int atOnce) {
        places = new Semaphore(atOnce, true);
        GroupScenarios.register(scenarios);
        RetryScenarios.register(scenarios);
        OrderScenarios.register(scenarios);
        DelayScenarios.register(scenarios);
        TransactionScenarios.register(scenarios);
        FilterScenarios.register(scenarios);
        SendScenarios.register(scenarios);
        QueryScenarios.register(scenarios);
        StartScenarios.register(scenarios);
        RestartScenarios.register(scenarios);
    }

    public static void main(String[] args) throws Exception {
        ScenarioTool tool = new ScenarioTool(Integer.parseInt(args[0]));
        // The clients and their libraries print now and then; the protocol keeps stdout for itself.
        System.setOut(System.err);
        ExecutorService pool = Executors.newCachedThreadPool();
        JSONObject request = tool.wire.receive();
        while (request != null) {
            JSONObject current = request;
            pool.execute(() -> tool.serve(current));
            request = tool.wire.receive();
        }
        // Clients of finished scenarios may still be closing. Nothing depends on it.
        Runtime.getRuntime().halt(0);
    }

    private void serve(JSONObject request) {
        int id = request.getIntValue("id");
        switch (request.getString("op")) {
            case "names":
                wire.send(new JSONObject().fluentPut("names", scenarios.keySet()).fluentPut("id", id));
                return;
            case "resume":
                paused.remove(request.getInteger("scenario")).resume(id);
                return;
            case "scenario":
                places.acquireUninterruptibly();
                try {
                    play(request, id);
                } finally {
                    places.release();
                }
                return;
            default:
                wire.send(new JSONObject().fluentPut("error", "no such op").fluentPut("id", id));
        }
    }

    private void play(JSONObject request, int id) {
        World world = new World(request, id, (pausing, answered) -> {
            paused.put(answered, pausing);
            wire.send(new JSONObject().fluentPut("paused", true).fluentPut("id", answered));
        });
        JSONObject answer;
        long begin = System.nanoTime();
        try {
            Scenario scenario = scenarios.get(request.getString("name"));
            if (scenario == null) {
                throw new IllegalArgumentException("no such scenario");
            }
            world.prepare();
            answer = new JSONObject().fluentPut("facts", scenario.play(world));
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer = new JSONObject().fluentPut("error", request.getString("name") + ": " + problem);
        }
        answer.fluentPut("seconds", (System.nanoTime() - begin) / 1e9);
        wire.send(answer.fluentPut("id", world.answerTo()));
        world.closeSoon();
    }
}
