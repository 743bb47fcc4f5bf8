//! A data directory of somebody else.

use super::{behind, start};
use crate::support::Server;

#[test]
#[ignore = "needs root: tests/faults/run"]
fn the_directory_of_another_user_is_refused_with_its_path_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    super::must("chmod", &["755", folder.path().to_str().unwrap()]);
    let server = start(folder.path(), &data).unwrap();
    server.redis().command("SET k v NX EX 900");
    assert_eq!(server.term().code(), 0);
    let nobody = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
    for mode in ["700", "755"] {
        super::must("chmod", &[mode, data.to_str().unwrap()]);
        // The binary may lie where that user cannot look.
        let copy = folder.path().join("onced");
        std::fs::copy(crate::support::onced().get_program(), &copy).unwrap();
        let arguments = [&nobody[..], &[copy.to_str().unwrap()]].concat();
        let mut command = std::process::Command::new("setpriv");
        command
            .args(&arguments)
            .args([
                "serve",
                "--http",
                "0",
                "--redis",
                "0",
                "--config",
                "/dev/null",
            ])
            .arg("--data-dir")
            .arg(&data);
        let Err(output) = Server::spawn(command) else {
            panic!("it started as another user, mode {mode}");
        };
        assert_eq!(output.code(), 12, "{output:?}");
        assert!(output.stderr.contains(data.to_str().unwrap()), "{output:?}");
        assert!(output.stderr.contains("ermission denied"), "{output:?}");
    }
    // A store that root wrote in the user's own directory: files of a foreign owner in it.
    super::must("chown", &["nobody", data.to_str().unwrap()]);
    let server = Server::spawn(behind("env", &[], folder.path(), &data));
    let server = server.unwrap_or_else(|output| panic!("root may: {output:?}"));
    let got = server.redis().command("GET k");
    assert_eq!(got, crate::support::redis::Reply::Bytes(b"v".into()));
}
