//! The memory use of the servers, compared with the table of runtimes.

use std::thread;

use mainstay_function::runtimes;

use super::server::Server;

const MEBIBYTE: u64 = 1 << 20;

#[test]
fn a_server_gets_along_with_the_least_memory_of_its_runtime_and_not_with_that_of_the_smallest_preset() {
    let sources = [
        ("python311", "def main(event, context):\n    return 'hello'\n"),
        ("nodejs22", "module.exports = { main: () => 'hello' }"),
    ];
    for (runtime, source) in sources {
        let least = runtimes::find(runtime).unwrap().least_memory();
        let least = least.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() * MEBIBYTE;
        let server = Server::start(runtime, source, &[]);
        let body = vec![b'x'; 64 << 10];
        thread::scope(|scope| {
            let ask = || (0..20).for_each(|_| assert_eq!(server.ask("POST", "/", &[], &body).short(), "200 hello"));
            (0..20).for_each(|_| drop(scope.spawn(ask)));
        });
        // The program's own text can be read again from disk; written memory cannot.
        let (own, whole) = (server.memory("RssAnon"), server.memory("VmHWM"));
        assert!(own * 3 / 2 <= least, "{runtime} has written {own} bytes and {least} are its least");
        // Before any import, Python takes 20 MiB; Node.js takes more than 32 MiB.
        assert!(whole > 16 * MEBIBYTE, "{runtime} takes {whole} bytes: what the table says is out of date");
    }
}
