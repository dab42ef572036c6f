//! Programs that fetch things work unchanged where their hosts were named: no proxy variable, no setting but whom to
//! trust, which is an authority of the test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::Network;
use crate::support::caller::Caller;

/// A place whose hosts have something for every client.
fn stocked(caller: Caller) -> Result<Network, String> {
    let network = Network::new(caller)?;
    let script = network.wrap.place.make_file("registries", include_str!("registries"));
    let mut make = Command::new("/usr/bin/python3");
    make.arg(script).current_dir(network.wrap.work()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    assert!(make.status().unwrap().success(), "the sites are not made");
    Ok(network)
}

macro_rules! stocked {
    ($caller:expr) => {
        match stocked($caller) {
            Ok(network) => network,
            Err(why) => skip!("{why}"),
        }
    };
}

/// The first program of this name on the PATH of the tests.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// A static program in Go that gets its arguments and says them, built once.
fn go_client() -> Result<&'static [u8], &'static str> {
    static BUILT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let go = program("go")?;
        let place = tempfile::Builder::new().prefix("saggar-go-").tempdir_in("/var/tmp").unwrap();
        let source = place.path().join("client.go");
        fs::write(&source, include_str!("client.go")).unwrap();
        let mut build = Command::new(go);
        build.args(["build", "-o", "client", "client.go"]).current_dir(place.path());
        build.env("CGO_ENABLED", "0").env("GOCACHE", place.path().join("cache")).env("GO111MODULE", "off");
        assert!(build.status().unwrap().success(), "the client in Go is not built");
        Some(fs::read(place.path().join("client")).unwrap())
    });
    built.as_deref().ok_or("there is no go on this machine")
}

/// The cargo of these tests and its compiler, where the caller can get to them; or why not.
fn cargo(network: &Network) -> Result<PathBuf, &'static str> {
    let bin = Path::new(env!("CARGO")).parent().unwrap();
    if fs::File::open(bin.join("rustc")).is_err() {
        return Err("this test needs to be started as root: the Rust that built it is out of reach");
    }
    let here = network.wrap.place.make_dir("rust", 0o755);
    for directory in ["bin", "lib"] {
        fs::create_dir(here.join(directory)).unwrap();
    }
    let libraries = fs::read_dir(bin.with_file_name("lib")).unwrap().flatten().map(|entry| entry.path());
    let libraries = libraries.filter(|path| path.is_file());
    for file in ["cargo", "rustc"].map(|name| bin.join(name)).into_iter().chain(libraries) {
        let to = here.join(file.strip_prefix(bin.parent().unwrap()).unwrap());
        if fs::hard_link(&file, &to).is_err() {
            fs::copy(&file, &to).unwrap();
        }
    }
    Ok(here)
}

as_each_caller! {
    fn git_clones_over_https(caller) {
        let network = stocked!(caller);
        let script = "env | grep -i proxy
export GIT_SSL_CAINFO=$PWD/cert.pem
git clone -q https://git.example/greeting.git cloned && cat cloned/greeting";
        assert_eq!(network.run(&["git.example"], script).success(), "cloned by git\n");
        assert_eq!(network.refused(), []);
    }

    fn npm_installs(caller) {
        let network = stocked!(caller);
        let script = "export npm_config_cafile=$PWD/cert.pem; mkdir user && cd user
npm install --silent --no-audit --no-fund --registry https://npm.example/ greeting && node -p 'require(\"greeting\")'";
        assert_eq!(network.run(&["npm.example"], script).success(), "installed by npm\n");
        assert_eq!(network.refused(), []);
    }

    /// The index is one host, and the files are another.
    fn pip_installs(caller) {
        let network = stocked!(caller);
        let script = "export PIP_CERT=cert.pem HOME=/tmp
/usr/bin/python3 -m pip install -q --target user --index-url https://pypi.example/simple greeting &&
PYTHONPATH=user /usr/bin/python3 -c 'import greeting; print(greeting.said)'";
        assert_eq!(network.run(&["pypi.example", "files.example"], script).success(), "installed by pip\n");
        assert_eq!(network.refused(), []);
        let ended = network.run(&["pypi.example"], &script.replace("user", "other"));
        assert_ne!(ended.code(), 0, "its files come from a host that nobody named");
        network.has_refused("files.example", "no rule names it");
    }

    fn cargo_fetches_from_a_sparse_registry(caller) {
        let network = stocked!(caller);
        let rust = match cargo(&network) {
            Ok(rust) => format!("{}:/opt/rust", rust.display()),
            Err(why) => skip!("{why}"),
        };
        for (name, content) in [
            ("Cargo.toml", "[package]\nname = \"user\"\nversion = \"1.0.0\"\n[dependencies]\ngreeting = { version = \"1\", registry = \"test\" }\n"),
            ("src/lib.rs", ""),
            (".cargo/config.toml", "[registries.test]\nindex = \"sparse+https://index.example/\"\n[http]\ncainfo = \"cert.pem\"\n"),
        ] {
            let path = network.wrap.work().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        network.wrap.place.make_dir("work/target", 0o755);
        let script = "cp -r Cargo.toml src .cargo cert.pem /tmp && cd /tmp && PATH=/opt/rust/bin:$PATH cargo fetch -q &&
cat $HOME/.cargo/registry/src/*/greeting-1.0.0/src/lib.rs";
        let options = ["--ro", &rust, "--allow-host", "index.example", "--allow-host", "crates.example"];
        let ended = network.run_with(&options, &["/bin/sh", "-c", script]);
        assert_eq!(ended.success(), "//! fetched by cargo\n");
        assert_eq!(network.refused(), []);
    }

    fn node_fetches(caller) {
        let network = stocked!(caller);
        let script = "export NODE_EXTRA_CA_CERTS=$PWD/cert.pem
node -e 'fetch(\"https://web.example/page\").then(r => r.text()).then(t => process.stdout.write(t))'";
        assert_eq!(network.run(&["web.example"], script).success(), "a page of web.example\n");
        assert_eq!(network.refused(), []);
    }

    /// The library, or the copy of it that pip brings; over IPv6 as well.
    fn requests_of_python_gets(caller) {
        let network = stocked!(caller);
        let script = "import socket
try: import requests, urllib3
except ImportError: from pip._vendor import requests, urllib3
get = lambda: print(requests.get('https://web.example/page', verify='cert.pem', timeout=20).text, end='')
get()
urllib3.util.connection.allowed_gai_family = lambda: socket.AF_INET6
get()";
        let ended = network.run_with(&["--allow-host", "web.example"], &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "a page of web.example\n".repeat(2));
        assert_eq!(network.refused(), []);
    }

    fn a_client_in_java_gets(caller) {
        let network = stocked!(caller);
        if program("javac").is_none() {
            skip!("there is no JDK on this machine");
        }
        // Debian keeps the settings of a JDK in /etc, of which a sandbox shows little.
        let settings = fs::read_dir("/etc").unwrap().flatten().map(|entry| entry.path());
        let settings: Vec<String> = settings
            .filter(|path| path.to_string_lossy().starts_with("/etc/java-"))
            .flat_map(|path| ["--ro".to_owned(), path.display().to_string()])
            .collect();
        fs::write(network.wrap.work().join("Client.java"), include_str!("Client.java")).unwrap();
        let script = "keytool -importcert -noprompt -storepass changeit -keystore /tmp/trust -file cert.pem 2>/dev/null
for six in false true; do
    java -Djavax.net.ssl.trustStore=/tmp/trust -Djavax.net.ssl.trustStorePassword=changeit \\
        -Djava.net.preferIPv6Addresses=$six Client.java https://web.example/page
done";
        let mut options: Vec<&str> = vec!["--allow-host", "web.example"];
        options.extend(settings.iter().map(String::as_str));
        let ended = network.run_with(&options, &["/bin/sh", "-c", script]);
        assert_eq!(ended.success(), "a page of web.example\n".repeat(2));
        assert_eq!(network.refused(), []);
    }

    /// A static program, which asks for names by itself.
    fn a_client_in_go_gets(caller) {
        let network = stocked!(caller);
        let client = match go_client() {
            Ok(client) => client,
            Err(why) => skip!("{why}"),
        };
        let path = network.wrap.place.join("client");
        fs::write(&path, client).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let show = format!("{}:/opt/client", path.display());
        let options = ["--ro", &show, "--allow-host", "web.example", "--env", "SSL_CERT_FILE=cert.pem"];
        let ended = network.run_with(&options, &["/opt/client", "https://web.example/page"]);
        assert_eq!(ended.success(), "a page of web.example\n");
        assert_eq!(network.refused(), []);
    }

    /// An address that nobody asked for, and the name in TLS alone: over either family.
    fn a_hard_coded_address_with_a_name_in_tls_is_served(caller) {
        let network = stocked!(caller);
        let script = "for address in 8.8.8.8:443 '[2001:4860:4860::8888]:443'; do
    printf 'GET /page HTTP/1.0\\r\\nHost: web.example\\r\\n\\r\\n' |
        openssl s_client -quiet -connect $address -servername web.example -CAfile cert.pem -verify_return_error 2>/dev/null | tail -1
done";
        assert_eq!(network.run(&["web.example"], script).success(), "a page of web.example\n".repeat(2));
        assert!(network.calls().iter().all(|call| !call.starts_with("8.8.8.8")), "{:?}", network.calls());
        assert_eq!(network.refused(), []);
    }
}
