import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.Properties;
import java.util.TreeMap;

/**
 * Reads .properties files with java.util.Properties. Standard input holds files, each with its length before it;
 * standard output gets for each the number of properties, or -1 when Java refuses the file, and then keys and values.
 */
public class PropertiesPeer {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException end) {
                out.flush();
                return;
            }
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(in.readNBytes(length)));
            } catch (IllegalArgumentException refusal) {
                out.writeInt(-1);
                continue;
            }
            out.writeInt(properties.size());
            for (String key : new TreeMap<Object, Object>(properties).keySet().toArray(new String[0])) {
                write(out, key);
                write(out, properties.getProperty(key));
            }
        }
    }

    private static void write(DataOutputStream out, String text) throws IOException {
        out.writeInt(2 * text.length());
        out.writeChars(text);
    }
}
