//! Requirements of the tutorials: repositories and registries, here on loopback.

use std::{any::Any, fs, path::Path};

use mainstay_testkit::{
    debuggers,
    git_server::GitServer,
    npm_registry,
    registry::{DockerRegistry, PASSWORD, Served, USER},
    remote::{NAME, Remote},
    ssh_server::{SshServer, generate},
};

/// The requirement of a tutorial beyond a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// The ports of debuggers.
    Debugger,
    /// A public `REPOSITORY`.
    PublicRepository,
    /// `REPOSITORY` over SSH, on `GIT_HOST` and `GIT_PORT`, with the key in the file `SSH_KEY`.
    RepositoryWithKey,
    /// `REPOSITORY` over HTTP, for `GIT_USER` with `GIT_PASSWORD`.
    RepositoryWithPassword,
    /// `REGISTRY`, for `REGISTRY_USER` with `REGISTRY_PASSWORD`, with a certificate of the CA in the file
    /// `REGISTRY_CA`.
    Registry,
    /// `PACKAGES`, an npm registry with `@our/thing`, with the token `PACKAGES_TOKEN`.
    Packages,
}

/// Servers that run until this is dropped.
pub(super) struct Provided {
    /// Variables of the reader's shell.
    pub(super) variables: Vec<(&'static str, String)>,
    _servers: Box<dyn Any>,
}

impl Need {
    /// Starts the servers. Files are written to the directory `room`, the reader's home.
    pub(super) async fn provide(self, room: &Path) -> Provided {
        let provided = |variables, servers| Provided { variables, _servers: servers };
        match self {
            Self::Nothing => provided(Vec::new(), Box::new(())),
            Self::Debugger => {
                let ports = tokio::task::spawn_blocking(debuggers::ports).await.unwrap();
                provided(Vec::new(), Box::new(ports))
            }
            Self::PublicRepository => {
                let remote = Remote::new();
                let server = GitServer::start(remote.root()).await;
                pushes_go_to(room, &remote, &server.base());
                provided(vec![("REPOSITORY", server.url(NAME))], Box::new((remote, server)))
            }
            Self::RepositoryWithPassword => {
                let remote = Remote::new();
                let server = GitServer::start(remote.root()).await;
                let (user, password) = ("reader", "token-of-the-reader");
                server.require(user, password);
                pushes_go_to(room, &remote, &server.base());
                let url = server.base().replace("://", &format!("://{user}:{password}@"));
                fs::write(room.join(".git-credentials"), url + "\n").unwrap();
                let variables = vec![
                    ("REPOSITORY", server.url(NAME)),
                    ("GIT_USER", user.to_owned()),
                    ("GIT_PASSWORD", password.to_owned()),
                ];
                provided(variables, Box::new((remote, server)))
            }
            Self::RepositoryWithKey => {
                let remote = Remote::new();
                let server = SshServer::start(remote.root()).await;
                let key = room.join("deploy-key");
                generate(&key, "ed25519", &[]);
                server.authorize(&fs::read_to_string(key.with_extension("pub")).unwrap());
                let variables = vec![
                    ("REPOSITORY", server.url(NAME)),
                    ("GIT_HOST", "127.0.0.1".to_owned()),
                    ("GIT_PORT", server.port().to_string()),
                    ("SSH_KEY", key.display().to_string()),
                ];
                provided(variables, Box::new((remote, server)))
            }
            Self::Registry => {
                let registry = DockerRegistry::start(Served::Safely).await;
                let authority = room.join("registry-ca.crt");
                fs::write(&authority, registry.authority()).unwrap();
                let variables = vec![
                    ("REGISTRY", registry.host()),
                    ("REGISTRY_USER", USER.to_owned()),
                    ("REGISTRY_PASSWORD", PASSWORD.to_owned()),
                    ("REGISTRY_CA", authority.display().to_string()),
                ];
                provided(variables, Box::new(registry))
            }
            Self::Packages => {
                let token = "token-for-packages";
                let variables =
                    vec![("PACKAGES", npm_registry::serve(token).await), ("PACKAGES_TOKEN", token.to_owned())];
                provided(variables, Box::new(()))
            }
        }
    }
}

/// The test server is read-only, so pushes go to its directory.
fn pushes_go_to(room: &Path, remote: &Remote, base: &str) {
    let config = format!("[url \"{}/\"]\n\tpushInsteadOf = {base}/\n", remote.root().display());
    let path = room.join(".gitconfig");
    fs::write(&path, fs::read_to_string(&path).unwrap() + &config).unwrap();
}
