//! The command line: one file per command, from arguments to exit code.
//!
//! Invariant: standard output contains only the result; everything else is written to standard error.
//!
//! Not here: syncing. Commands use the API server; only `agent` and `dev` run the agent itself.

mod agent;
mod agent_log;
#[cfg(feature = "dev")]
mod bench;
mod build;
mod check;
mod completion;
mod connection;
mod console;
mod convert;
mod crd;
mod deploy_key;
#[cfg(feature = "dev")]
mod dev;
mod dev_run;
mod diff;
mod drift;
mod environment;
mod error;
mod eventing;
mod events;
mod exit;
mod explain;
mod exposure;
mod follow;
mod function;
mod get;
mod history;
mod identity;
mod ids;
mod ignore_for;
mod install;
mod lease;
mod lease_identity;
mod length;
#[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "what writes there besides is of the embedded cluster"))]
mod local_directory;
mod log_file;
mod logs;
mod manifests;
mod object_name;
mod object_rules;
mod output;
#[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "only `dev` asks"))]
mod overlays;
mod pause;
mod preview;
mod private_directory;
mod progress;
mod registry;
mod renderer;
mod runtimes;
mod settled;
mod shard;
mod status;
mod stop;
mod style;
mod suspend;
mod sync;
mod syncs;
mod table;
mod trace;
mod tree;
mod ui;
mod uninstall;
mod version;
mod work_tree;

use std::{ffi::OsString, process::ExitCode};

use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use connection::ClusterArguments;

use error::Error;
use exit::Exit;

/// Keeps a Kubernetes cluster in sync with a Git repository: applies commits, prunes removed objects, reverts hand
/// edits.
#[derive(Parser, Debug)]
#[command(name = "mainstay", version, after_help = CLUSTER_FLAGS)]
struct Arguments {
    /// Those before the command; clap hands them down to it.
    #[command(flatten)]
    _cluster: ClusterArguments,
    /// The same.
    #[arg(short, long = "namespace", id = "namespace", global = true, value_name = "NS", help_heading = connection::HEADING)]
    _namespace: Option<String>,
    /// When to colour the output: auto (on a terminal, unless $NO_COLOR is set), always or never
    #[arg(
        long = "color",
        id = "color",
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    _color: style::Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the agent, inside or outside of a cluster
    Agent(Box<agent::Arguments>),
    /// Print all manifests that a cluster needs to follow a repository, for `kubectl apply -f -`
    Install(Box<install::Arguments>),
    /// Print the public SSH key of a repository, and where to add it
    Identity(identity::Arguments),
    /// Check the cluster, the agent's permissions and the repositories, and print problems; exit code 2 if there are
    /// any
    Check(check::Arguments),
    /// Remove the agent from the cluster; the objects that it applied stay
    Uninstall(uninstall::Arguments),
    /// Print the CustomResourceDefinitions as YAML, for `kubectl apply -f -`
    Crd,
    /// Show which files of a directory the agent reads and which it skips, and why; exit code 1 if a file has problems
    Manifests(manifests::Arguments),
    /// Print the objects of Mainstay for those of Flux or Argo CD; exit code 1 if anything is lost
    Convert(convert::Arguments),
    /// Develop a Function in a directory: init, run, apply, sync. `mainstay init function` and the like do the same
    Function(function::Arguments),
    /// Request a sync of a GitSync, wait until its objects are healthy, and print the commit and the result. `mainstay
    /// sync function NAME` is the same as `mainstay function sync NAME`
    Sync(sync::Arguments),
    /// Print the objects of Mainstay, by default GitSyncs, as `kubectl get` does
    Get(get::Arguments),
    /// Show repository, commit, objects, failures, remaining drift, reverts and pauses; a table for several GitSyncs
    Status(status::Arguments),
    /// Show the last applied commits of GitSyncs, newest first: when, how long it took, and what each changed
    History(history::Arguments),
    /// Show drift that was not reverted, field by field, or the changes of a work tree or a revision; exit code 1 if
    /// there are any
    Diff(diff::Arguments),
    /// Show the objects that GitSyncs manage and their children, each with its health
    Tree(tree::Arguments),
    /// Open a web page of this machine: all GitSyncs and Functions, what is wrong, and who changed what
    Ui(ui::Arguments),
    /// Serve the web page to all users of a cluster, each with the permissions of their own token
    Console(console::Arguments),
    /// Show the origin and the state of an object, and the next action of the agent on it
    Trace(object_name::ObjectArguments),
    /// Explain the reason of a condition: its meaning and remedy; without a name, list all reasons
    Explain(explain::Arguments),
    /// Print the `spec.ignore` rule for the fields of an object that others have changed; exit code 1 if there are any
    IgnoreFor(object_name::ObjectArguments),
    /// Show the Events of GitSyncs and of the objects that they manage, newest last
    Events(events::Arguments),
    /// Print the log of the agent, or its lines about one object
    Logs(agent_log::Arguments),
    /// Accept CloudEvents and deliver them to subscribers; list undeliverable events, and deliver them again
    Eventing(eventing::Arguments),
    /// Print the completion script of a shell: `source <(mainstay completion bash)`
    Completion(completion::Arguments),
    /// Run one container of a build Job
    #[command(hide = true)]
    Build(build::Arguments),
    /// Run a container of the registry's pod
    #[command(hide = true)]
    Registry(registry::Arguments),
    /// Run the container that renders kustomizations and charts for the agent
    #[command(hide = true)]
    Renderer(renderer::Arguments),
    /// Fetch the packages that the runtime servers of Functions need; required once
    Runtimes(runtimes::Arguments),
    /// Pause one object: it is neither applied nor reverted
    Pause(pause::PauseArguments),
    /// Suspend GitSyncs: nothing is applied, pruned or reverted
    Suspend(suspend::Arguments),
    /// Resume suspended GitSyncs, or one paused object: `mainstay resume deploy/web`
    Resume(pause::ResumeArguments),
    /// Print the versions of this program and of the leading agent; exit code 1 if no agent leads
    Version(version::Arguments),
    /// Try Mainstay in an embedded cluster that follows a repository of yours or a demonstration
    #[cfg(feature = "dev")]
    Dev(dev::Arguments),
    /// Benchmark the agent and print the results as a table; exit code 1 if a target is missed
    #[cfg(feature = "dev")]
    Bench(bench::Arguments),
}

/// The end of the help.
const CLUSTER_FLAGS: &str = "\
Commands that connect to a cluster accept these flags of kubectl, before or after the command: --kubeconfig, --context,
--cluster, --user, --as, --as-group, --request-timeout, --namespace.";

/// Size of the pool for blocking calls: at least twice the maximum for all remotes. So accesses to files and packs and
/// lookups of the API server's name always get a thread. Idle threads end.
const BLOCKING_THREADS: usize = 128;
const _: () = assert!(BLOCKING_THREADS >= 2 * mainstay_git::MAX_THREADS);

/// Parses the arguments of the process, runs the command and returns its exit code: 0 fine, 1 differences or not in
/// sync, 2 failed.
pub fn run() -> ExitCode {
    completion::answer(command_line);
    let words = std::env::args_os().collect::<Vec<_>>();
    style::choose(style::given(words.iter().filter_map(|word| word.to_str())));
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(Error::Start);
    match runtime.and_then(|runtime| runtime.block_on(perform(arguments.command))) {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error),
    }
}

/// Returns the commands. Cluster flags that clap passes on to other commands are hidden in their help.
fn command_line() -> clap::Command {
    Arguments::command().mut_args(|flag| {
        let is_of_cluster = flag.get_help_heading() == Some(connection::HEADING);
        flag.hide(is_of_cluster)
    })
}

fn parse_words(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let words = &with_kind_and_name(words)[..];
    let mut command = command_line().color(style::given(words.iter().filter_map(|word| word.to_str())).of_clap());
    let mut matches = command.try_get_matches_from_mut(words).map_err(|error| with_counterpart(error, words))?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Commands whose argument is the name of a GitSync.
const OF_A_GIT_SYNC: [&str; 6] = ["status", "sync", "history", "diff", "tree", "events"];

/// Joins kind and name of a GitSync: `status gitsync apps` becomes `status gitsync/apps`.
fn with_kind_and_name(words: &[OsString]) -> Vec<OsString> {
    let word = |at: usize| words.get(at).and_then(|word| word.to_str());
    let (Some(command), Some(kind), Some(name)) = (word(1), word(2), word(3)) else { return words.to_vec() };
    let is_pair = OF_A_GIT_SYNC.contains(&command) && !name.starts_with('-') && !name.contains('/');
    if !is_pair || get::resource::Resource::named(kind) != Some(get::resource::GIT_SYNCS) {
        return words.to_vec();
    }
    let joined = OsString::from(format!("{kind}/{name}"));
    words[..2].iter().chain([&joined]).chain(&words[4..]).cloned().collect()
}

/// Commands of other tools, with their equivalents.
const COUNTERPARTS: [(&str, &str); 8] = [
    ("stats", "mainstay status"),
    ("reconcile", "mainstay sync"),
    ("bootstrap", "mainstay install"),
    ("describe", "mainstay status"),
    ("export", "mainstay get KIND -o yaml"),
    ("list", "mainstay get all"),
    ("app", "mainstay get gitsyncs"),
    ("rollback", "git revert, and mainstay sync"),
];

/// Adds the equivalent of a command or flag of another tool to the error.
fn with_counterpart(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let unknown = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    let (command, flag) = (unknown(ContextKind::InvalidSubcommand), unknown(ContextKind::InvalidArg));
    let tip = match COUNTERPARTS.iter().find(|(word, _)| *word == command) {
        Some((_, ours)) => Some(format!("the same is done by: {ours}")),
        // `mainstay build` runs in the Jobs of Functions.
        None if !command.is_empty() && words.get(1).is_some_and(|word| word == "build") => {
            Some(format!("the same is done by: mainstay diff {command} --path DIR"))
        }
        None if flag == "--with-source" => {
            Some("`mainstay sync` looks up the repository each time: leave the flag out".to_owned())
        }
        None => None,
    };
    if let Some(tip) = tip {
        let tip = vec![tip.into()];
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
    }
    error
}

/// Parses the arguments. `sync function` without a name refers to the GitSync with the name `function`.
fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let Some(in_order) = function::words::in_order(words) else { return parse_words(words) };
    let meant = parse_words(&in_order);
    match meant {
        Err(error) if error.kind() != ErrorKind::DisplayHelp => parse_words(words).map_err(|_| error),
        meant => meant,
    }
}

async fn perform(command: Command) -> Result<Exit, Error> {
    match command {
        Command::Agent(arguments) => agent::run(*arguments).await,
        Command::Install(arguments) => install::run(*arguments).await,
        Command::Identity(arguments) => identity::run(arguments).await,
        Command::Check(arguments) => check::run(arguments).await,
        Command::Uninstall(arguments) => uninstall::run(arguments).await,
        Command::Crd => crd::run(),
        Command::Manifests(arguments) => manifests::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments).await,
        Command::Function(arguments) => function::run(&arguments).await,
        Command::Sync(arguments) => sync::run(&arguments).await,
        Command::Get(arguments) => get::run(&arguments).await,
        Command::Status(arguments) => status::run(&arguments).await,
        Command::History(arguments) => history::run(&arguments).await,
        Command::Diff(arguments) => diff::run(&arguments).await,
        Command::Tree(arguments) => tree::run(&arguments).await,
        Command::Ui(arguments) => ui::run(&arguments).await,
        Command::Console(arguments) => console::run(&arguments).await,
        Command::Trace(arguments) => trace::run(&arguments).await,
        Command::Explain(arguments) => explain::run(&arguments),
        Command::IgnoreFor(arguments) => ignore_for::run(&arguments).await,
        Command::Events(arguments) => events::run(&arguments).await,
        Command::Logs(arguments) => agent_log::run(&arguments).await,
        Command::Eventing(arguments) => eventing::run(arguments).await,
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Build(arguments) => build::run(arguments).await,
        Command::Registry(arguments) => registry::run(arguments).await,
        Command::Renderer(arguments) => renderer::run(arguments).await,
        Command::Runtimes(arguments) => runtimes::run(arguments).await,
        Command::Pause(arguments) => pause::pause(&arguments).await,
        Command::Suspend(arguments) => suspend::run(&arguments).await,
        Command::Version(arguments) => version::run(&arguments).await,
        Command::Resume(arguments) => pause::resume(&arguments).await,
        #[cfg(feature = "dev")]
        Command::Dev(arguments) => dev::run(arguments).await,
        #[cfg(feature = "dev")]
        Command::Bench(arguments) => bench::run(arguments).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_function::Settings;

    /// Returns whether a line is about a Function; `None` if it is refused.
    fn is_about_a_function(line: &str) -> Option<bool> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        parse(&words).ok().map(|arguments| matches!(arguments.command, Command::Function(_)))
    }

    #[test]
    fn one_word_after_sync_is_a_git_sync_and_two_are_a_function() {
        assert_eq!(is_about_a_function("mainstay sync shop"), Some(false));
        assert_eq!(is_about_a_function("mainstay sync function"), Some(false));
        assert_eq!(is_about_a_function("mainstay sync function --no-wait -n team"), Some(false));
        assert_eq!(is_about_a_function("mainstay sync function shop"), Some(true));
        assert_eq!(is_about_a_function("mainstay sync function function -d out"), Some(true));
        assert_eq!(is_about_a_function("mainstay --context there -n team sync function"), Some(false));
        assert_eq!(is_about_a_function("mainstay --context there -n team sync function shop"), Some(true));
        assert_eq!(is_about_a_function("mainstay sync function --dir out shop"), Some(true));
        assert_eq!(is_about_a_function("mainstay sync function shop --no-wait"), None);
        assert_eq!(is_about_a_function("mainstay init function --runtime python38 --dir ws"), Some(true));
        assert_eq!(
            is_about_a_function("mainstay apply function --filename a/config.yaml --output yaml --dry-run"),
            Some(true)
        );
        assert_eq!(is_about_a_function("mainstay apply"), None);
    }

    #[test]
    fn kind_and_name_of_a_git_sync_are_one_argument() {
        let joined = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            with_kind_and_name(&words).join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        for command in OF_A_GIT_SYNC {
            assert_eq!(
                joined(&format!("mainstay {command} gitsync apps -A")),
                format!("mainstay {command} gitsync/apps -A")
            );
        }
        for line in [
            "mainstay status gitsync",
            "mainstay status gitsync -A",
            "mainstay sync function apps",
            "mainstay get gs a",
        ] {
            assert_eq!(joined(line), line);
        }
        assert!(parse(&["mainstay", "status", "gs", "apps"].map(OsString::from)).is_ok());
    }

    #[test]
    fn an_unknown_command_is_answered_with_its_counterpart() {
        for (word, expected) in [("reconcile", "mainstay sync"), ("bootstrap", "mainstay install")] {
            let error = parse(&["mainstay", word, "x"].map(OsString::from)).err().unwrap().to_string();
            assert!(error.contains(&format!("tip: the same is done by: {expected}")), "{error}");
        }
        let refused = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            parse(&words).err().unwrap().to_string()
        };
        let error = refused("mainstay build apps");
        assert!(error.contains("tip: the same is done by: mainstay diff apps --path DIR"), "{error}");
        let error = refused("mainstay sync apps --with-source");
        assert!(error.contains("leave the flag out") && !error.contains("as a value"), "{error}");
        assert!(COUNTERPARTS.iter().all(|(word, _)| Arguments::command().find_subcommand(word).is_none()));
    }

    /// Returns the names of the environment variables that a command or its subcommands read.
    fn variables(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
        own.chain(command.get_subcommands().flat_map(variables)).collect()
    }

    #[test]
    fn the_agent_starts_with_every_variable_that_a_command_reads() {
        let all = variables(&Arguments::command());
        assert!(all.iter().any(|name| name == "MAINSTAY_POD"), "{all:?}");
        let read = Settings::from_env(Settings::default(), all.into_iter().map(|name| (name, "x".to_owned())));
        assert_eq!(read, Ok(Settings::default()));
    }
}
