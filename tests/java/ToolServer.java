import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's command line tools one after the other in one virtual machine,
 * since starting one costs more than most of them do.
 *
 * Reads a JSON object per line: {"main": class, "args": [...], "stdin": text}. Answers each with
 * {"exit": status, "out": text, "err": text}. A tool that ends the process ends only its run.
 */
public final class ToolServer {
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
        final int status;

        Ended(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Ended ended;

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> end(status, message));
        Exit.setHaltProcedure((status, message) -> end(status, message));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        InputStream commands = System.in;
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(json.writeValueAsString(run(json.readTree(line))));
            answers.flush();
        }
    }

    /**
     * Ends the tool's run. Some tools catch everything around their own exit and exit again: the
     * first status is the one that a process would have had, and nothing is said after it.
     */
    private static void end(int status, String message) {
        if (ended == null) {
            if (message != null) {
                System.err.println(message);
            }
            ended = new Ended(status);
            System.setOut(new PrintStream(PrintStream.nullOutputStream()));
            System.setErr(new PrintStream(PrintStream.nullOutputStream()));
        }
        throw ended;
    }

    private static Map<String, Object> run(JsonNode command) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        InputStream realIn = System.in;
        List<String> args = new ArrayList<>();
        command.get("args").forEach(arg -> args.add(arg.asText()));
        int status = 0;
        ended = null;
        try {
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(
                command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            status = call(command.get("main").asText(), args.toArray(new String[0]));
            HOOKS.forEach(Runnable::run);
        } finally {
            HOOKS.clear();
            System.setOut(realOut);
            System.setErr(realErr);
            System.setIn(realIn);
        }
        return Map.of(
            "exit", status,
            "out", out.toString(StandardCharsets.UTF_8),
            "err", err.toString(StandardCharsets.UTF_8));
    }

    private static int call(String main, String[] args) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) args);
            return ended == null ? 0 : ended.status;
        } catch (InvocationTargetException failure) {
            if (ended != null) {
                return ended.status;
            }
            failure.getCause().printStackTrace();
            return 1;
        }
    }
}
