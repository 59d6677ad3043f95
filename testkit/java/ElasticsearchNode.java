package org.elasticsearch.node;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.env.Environment;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.ElasticsearchPlugins;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.plugins.PluginsLoader;
import org.elasticsearch.plugins.PluginsService;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.transport.netty4.Netty4Plugin;

/**
 * One Elasticsearch node in this process: its home directory, HTTP port and transport port are the arguments. It ends
 * with the process. It is in Elasticsearch's package because the way to give a node its plugins is open to no other.
 */
public final class ElasticsearchNode {
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
    LogConfigurator.configureESLogging();
    Environment environment = new Environment(settings, home.resolve("config"));
    Node node = new Node(NodeConstruction.prepareConstruction(environment, null, new OwnPlugins(), true));
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

  private static final class OwnPlugins extends NodeServiceProvider {
    @Override
    PluginsService newPluginService(Environment environment, PluginsLoader loader) {
      return new ElasticsearchPlugins(environment, List.of(new Netty4Plugin(), new RootPlugin()));
    }
  }

  /** Answers `GET /`, which is the work of a module that nobody publishes. */
  public static final class RootPlugin extends Plugin implements ActionPlugin {
    @Override
    public Collection<RestHandler> getRestHandlers(
        Settings settings,
        NamedWriteableRegistry writeables,
        RestController controller,
        ClusterSettings clusterSettings,
        IndexScopedSettings indexSettings,
        SettingsFilter filter,
        IndexNameExpressionResolver resolver,
        Supplier<DiscoveryNodes> nodes,
        Predicate<NodeFeature> features) {
      return List.of(new RootHandler());
    }
  }

  private static final class RootHandler extends BaseRestHandler {
    @Override
    public String getName() {
      return "root";
    }

    @Override
    public List<Route> routes() {
      return List.of(new Route(RestRequest.Method.GET, "/"));
    }

    @Override
    protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) throws IOException {
      String version = Build.current().version();
      String text = "{\"version\":{\"number\":\"" + version + "\"},\"tagline\":\"You Know, for Search\"}";
      return channel -> channel.sendResponse(new RestResponse(RestStatus.OK, "application/json", text));
    }
  }
}
