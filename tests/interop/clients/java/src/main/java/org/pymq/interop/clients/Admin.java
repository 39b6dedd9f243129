package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin, called as its script calls it but without a JVM per command; what it prints is the answer. */
final class Admin {
    synchronized JSONObject run(JSONObject request) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(request.getJSONArray("arguments").toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return new JSONObject()
            .fluentPut("output", printed.toString(StandardCharsets.UTF_8))
            .fluentPut("complaints", complained.toString(StandardCharsets.UTF_8));
    }
}
