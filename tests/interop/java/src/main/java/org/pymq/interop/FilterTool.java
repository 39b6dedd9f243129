package org.pymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Asks Apache RocketMQ's filters: one JSON object per line in and out.
 *
 * <pre>
 *   {"expression": E, "messages": [{name: value}…]}  answers {"accepted": B, "verdicts": ["TRUE"|"FALSE"|"NULL"|"ERROR"…]}
 *   {"register": [[topic, group, expression, version]…], "dead": [group…]}  answers {"file": consumerFilter.json}
 *   {"load": consumerFilter.json}  answers {"loaded": [[topic, group, expression, version, compiles]…]}
 * </pre>
 */
public final class FilterTool {
    private static final int ERROR_RATE = 20;
    private static final int CONSUMERS = 32;

    private FilterTool() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream protocol = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            JSONObject request = JSON.parseObject(line);
            JSONObject answer = request.containsKey("expression") ? evaluate(request)
                : request.containsKey("register") ? register(request) : load(request);
            protocol.println(answer.toString());
        }
        protocol.flush();
    }

    private static JSONObject evaluate(JSONObject request) {
        JSONObject answer = new JSONObject();
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(request.getString("expression"));
        } catch (Throwable refused) {
            answer.put("accepted", false);
            return answer;
        }
        JSONArray verdicts = new JSONArray();
        for (Object message : request.getJSONArray("messages")) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) message).forEach((name, value) -> properties.put(name, (String) value));
            verdicts.add(verdict(compiled, properties));
        }
        answer.put("accepted", true);
        answer.put("verdicts", verdicts);
        return answer;
    }

    private static String verdict(Expression compiled, Map<String, String> properties) {
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(properties));
            return value == null ? "NULL" : value instanceof Boolean ? value.toString().toUpperCase() : "OTHER";
        } catch (Throwable thrown) {
            return "ERROR";
        }
    }

    /** The manager as a broker with default settings has it. */
    private static ConsumerFilterManager manager() throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        Field bloom = ConsumerFilterManager.class.getDeclaredField("bloomFilter");
        bloom.setAccessible(true);
        bloom.set(manager, BloomFilter.createByFn(ERROR_RATE, CONSUMERS));
        return manager;
    }

    private static JSONObject register(JSONObject request) throws Exception {
        ConsumerFilterManager manager = manager();
        for (Object item : request.getJSONArray("register")) {
            JSONArray fields = (JSONArray) item;
            manager.register(fields.getString(0), fields.getString(1), fields.getString(2), "SQL92",
                fields.getLongValue(3));
        }
        for (Object group : request.getJSONArray("dead")) {
            manager.unRegister((String) group);
        }
        JSONObject answer = new JSONObject();
        answer.put("file", manager.encode(true));
        return answer;
    }

    private static JSONObject load(JSONObject request) throws Exception {
        ConsumerFilterManager manager = manager();
        manager.decode(request.getString("load"));
        JSONArray loaded = new JSONArray();
        manager.getFilterDataByTopic().forEach((topic, map) -> map.getGroupFilterData().forEach((group, data) -> {
            JSONArray entry = new JSONArray();
            entry.add(topic);
            entry.add(group);
            entry.add(data.getExpression());
            entry.add(data.getClientVersion());
            entry.add(data.getCompiledExpression() != null);
            loaded.add(entry);
        }));
        JSONObject answer = new JSONObject();
        answer.put("loaded", loaded);
        return answer;
    }
}
