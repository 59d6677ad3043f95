import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/**
 * One OpenSearch node in this process: its home directory, HTTP port and transport port are the arguments. It ends with
 * the process.
 */
public final class OpenSearchNode extends Node {
  private OpenSearchNode(Environment environment, Collection<Class<? extends Plugin>> plugins) {
    super(environment, plugins, true);
  }

  @Override
  protected void configureNodeAndClusterIdStateListener(
      org.opensearch.cluster.service.ClusterService clusterService) {}

  public static void main(String[] arguments) throws Exception {
    Path home = Path.of(arguments[0]).toAbsolutePath();
    for (String name : List.of("config", "modules", "plugins")) {
      Files.createDirectories(home.resolve(name));
    }
    Settings settings =
        Settings.builder()
            .put("path.home", home.toString())
            .put("path.data", home.resolve("data").toString())
            .put("path.logs", home.resolve("logs").toString())
            .put("cluster.name", "penstock")
            .put("node.name", "penstock")
            .put("network.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.port", arguments[2])
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .put("node.store.allow_mmap", false)
            .build();
    List<Class<? extends Plugin>> plugins =
        List.of(
            org.opensearch.transport.Netty4Plugin.class,
            org.opensearch.index.mapper.MapperExtrasPlugin.class,
            org.opensearch.analysis.common.CommonAnalysisPlugin.class);
    OpenSearchNode node = new OpenSearchNode(new Environment(settings, home.resolve("config")), plugins);
    node.start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
    Thread.currentThread().join();
  }

  private static void close(Node node) {
    try {
      node.close();
    } catch (Exception error) {
      error.printStackTrace();
    }
  }
}
