package org.pymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;

/** One JSON object per line, both ways. Output is flushed by whoever needs an answer, not per line. */
final class Wire {
    private final BufferedReader source;
    private final PrintStream target;

    Wire(BufferedReader source, PrintStream target) {
        this.source = source;
        this.target = target;
    }

    static JSONObject line(String type) {
        return new JSONObject().fluentPut("type", type);
    }

    /** The next object, or null at the end of input. Blank lines are skipped. */
    JSONObject receive() throws IOException {
        String text = source.readLine();
        while (text != null && text.isBlank()) {
            text = source.readLine();
        }
        return text == null ? null : JSON.parseObject(text);
    }

    void post(JSONObject line) {
        target.println(line.toString(JSONWriter.Feature.WriteMapNullValue));
    }

    void send(JSONObject line) {
        post(line);
        target.flush();
    }

    void flush() {
        target.flush();
    }
}
