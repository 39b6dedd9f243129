package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;

/** One thing that users rely on: done, and told as facts. */
interface Scenario {
    JSONObject play(World world) throws Exception;
}
