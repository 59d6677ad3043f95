package org.elasticsearch.plugins;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.Build;
import org.elasticsearch.env.Environment;

/**
 * Plugins that are on the class path. Elasticsearch itself looks for them in directories of its distribution, which
 * there is none of here; this class is in its package because the list that it fills is open to no other.
 */
public final class ElasticsearchPlugins extends PluginsService {
  private final List<LoadedPlugin> loaded;

  public ElasticsearchPlugins(Environment environment, List<Plugin> plugins) {
    super(environment.settings(), environment.configDir(), new PluginsLoader(Set.of(), Set.of(), Map.of()));
    loaded = plugins.stream().map(ElasticsearchPlugins::described).toList();
  }

  private static LoadedPlugin described(Plugin plugin) {
    String name = plugin.getClass().getName();
    String version = Build.current().version();
    PluginDescriptor descriptor =
        new PluginDescriptor(name, name, version, version, "17", name, null, List.of(), false, false, false, false);
    return new LoadedPlugin(descriptor, plugin, plugin.getClass().getClassLoader());
  }

  @Override
  protected List<LoadedPlugin> plugins() {
    return loaded;
  }
}
