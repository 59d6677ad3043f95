import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;


/**
 * Cassandra's own commit-log code as a peer: reads, measures and writes segments, one command a line on standard input,
 * each answered by one or more lines of JSON.
 *
 *   schema FILE            apply the statements of a file
 *   dump FILE              every entry that is accepted, then a summary
 *   count FILE             the summary only
 *   pass MODE FILE…        read the files once, timed; MODE is deserialise, rows or values
 *   write KEY=VALUE…       write segments of a workload (SegmentWriter says which)
 *
 * Arguments: a scratch directory, then settings of cassandra.yaml as KEY=VALUE.
 */
public final class CommitLogPeer {
    private CommitLogPeer() {}

    public static void main(String[] arguments) throws Exception {
        // Cassandra logs to standard output; the answers have it for themselves.
        OutputStream answers = new FileOutputStream(FileDescriptor.out);
        System.setOut(System.err);
        Path directory = Path.of(arguments[0]);
        CassandraSchema.initialise(directory, pairs(arguments, 1));
        answer(answers, "{\"ready\":true}\n");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = command(line.split("\t"), directory);
            } catch (Throwable e) {
                e.printStackTrace();
                answer = "{\"error\":" + SegmentDump.text(causes(e)) + "}\n";
            }
            answer(answers, answer);
        }
        // Threads of Cassandra may still be there.
        System.exit(0);
    }

    /** An error with all that led to it. */
    private static String causes(Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(error));
        for (Throwable e = error.getCause(); e != null; e = e.getCause()) text.append("; because of ").append(e);
        return text.toString();
    }

    private static String command(String[] words, Path directory) throws Exception {
        switch (words[0]) {
            case "schema":
                CassandraSchema.load(Path.of(words[1]));
                return "{\"done\":true}\n";
            case "dump":
                return SegmentDump.dump(words[1], false);
            case "count":
                return SegmentDump.dump(words[1], true);
            case "pass":
                return SegmentPass.run(words[1], Arrays.asList(words).subList(2, words.length));
            case "write":
                return SegmentWriter.run(pairs(words, 1), directory);
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static void answer(OutputStream answers, String text) throws Exception {
        answers.write(text.getBytes(StandardCharsets.UTF_8));
        answers.flush();
    }

    private static Map<String, String> pairs(String[] words, int from) {
        Map<String, String> found = new TreeMap<>();
        for (String word : Arrays.asList(words).subList(from, words.length)) {
            int at = word.indexOf('=');
            found.put(word.substring(0, at), word.substring(at + 1));
        }
        return found;
    }
}
