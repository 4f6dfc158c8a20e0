import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node on this machine, until standard input ends: it says the ports of RPC and of HTTP. */
public class Cluster {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    settings.set("hdfs.minidfs.basedir", arguments[0]);
    settings.set("dfs.permissions.enabled", "false");
    try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings).numDataNodes(1).build()) {
      cluster.waitActive();
      System.out.println(cluster.getNameNodePort() + " " + cluster.getNameNode().getHttpAddress().getPort());
      System.in.read();
    }
    System.exit(0);
  }
}
