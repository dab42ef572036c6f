//! `linux.sysctl`: only parameters of the container's own namespaces; all others would change the host.

use super::field_path::FieldPath;
use crate::spec::container::{Namespace, Namespaces};
use saggar_sys::error::Result;
use std::collections::BTreeMap;

/// Parameters of the IPC namespace (ipc_namespaces(7)).
const IPC_PARAMETERS: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];

/// Lowers the parameters. Names have dots as separators; a dot in a component is written as a slash, as by
/// sysctl(8).
pub(super) fn lower_sysctl(
    entries: Option<BTreeMap<String, String>>,
    domainname: Option<&str>,
    namespaces: &Namespaces,
) -> Result<BTreeMap<String, String>> {
    let linux = FieldPath::root("linux");
    let list = linux.key("sysctl");
    let mut all = BTreeMap::new();
    for (key, value) in entries.unwrap_or_default() {
        let field = list.key(&key);
        let name = to_dotted(&key);
        // Components become file names below /proc/sys.
        if name.split('.').any(|part| matches!(part, "" | "/" | "//")) {
            return Err(field.invalid("is not the name of a parameter"));
        }
        let needed = required_namespace(&name).ok_or_else(|| {
            let error = field.invalid("belongs to no namespace and would change the host");
            match name.as_str() {
                "kernel.hostname" => error.hint("give the name as hostname"),
                _ => error.hint(
                    "remove it; what can be set is net.*, fs.mqueue.*, user.* and the ipc part of kernel.*",
                ),
            }
        })?;
        if !namespaces.has(needed) {
            let needed = needed.proc_name();
            let error =
                field.invalid(format_args!("would change the host: the container has no {needed} namespace"));
            return Err(error.hint("add the namespace to linux.namespaces, or remove the parameter"));
        }
        // One of the two would silently override the other.
        if name == "kernel.domainname" && domainname.is_some_and(|domainname| domainname != value) {
            return Err(field.invalid("is not the domainname that is given beside it").hint("leave it out"));
        }
        if all.insert(name, value).is_some() {
            return Err(field.invalid("is given twice, with dots and with slashes"));
        }
    }
    Ok(all)
}

fn required_namespace(name: &str) -> Option<Namespace> {
    let below = |prefix: &str| name.starts_with(prefix);
    match name {
        _ if IPC_PARAMETERS.contains(&name) || below("fs.mqueue.") => Some(Namespace::Ipc),
        _ if below("net.") => Some(Namespace::Network),
        _ if below("user.") => Some(Namespace::User),
        "kernel.domainname" => Some(Namespace::Uts),
        _ => None,
    }
}

/// Converts a name whose first separator is a slash: slashes become dots and dots become slashes
/// (sysctl(8)).
fn to_dotted(key: &str) -> String {
    match key.find(['.', '/']) {
        Some(at) if key[at..].starts_with('/') => {
            let swapped = |c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            key.chars().map(swapped).collect()
        }
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(namespaces: &[Namespace], name: &str) -> Result<String, String> {
        let namespaces = Namespaces { new: namespaces.to_vec(), ..Namespaces::default() };
        let entries = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
        let all = lower_sysctl(Some(entries), None, &namespaces).map_err(|error| error.to_string())?;
        Ok(all.into_keys().next().unwrap())
    }

    #[test]
    fn a_parameter_needs_the_namespace_that_it_belongs_to() {
        let of = [
            (Namespace::Ipc, "kernel.shmmax"),
            (Namespace::Ipc, "fs.mqueue.msg_max"),
            (Namespace::Network, "net.ipv4.ip_forward"),
            (Namespace::Uts, "kernel.domainname"),
            (Namespace::User, "user.max_user_namespaces"),
        ];
        for (namespace, name) in of {
            assert_eq!(checked(&[namespace], name).as_deref(), Ok(name));
            let others: Vec<_> = Namespace::ALL.into_iter().filter(|other| *other != namespace).collect();
            let error = checked(&others, name).unwrap_err();
            assert!(error.contains(&format!("linux.sysctl.{name} would change the host")), "{error}");
        }
    }

    #[test]
    fn two_domain_names_must_be_one() {
        let namespaces = Namespaces { new: vec![Namespace::Uts], ..Namespaces::default() };
        let with = |domainname| {
            let entries = BTreeMap::from([("kernel.domainname".to_owned(), "a".to_owned())]);
            lower_sysctl(Some(entries), domainname, &namespaces)
        };
        assert!(with(None).is_ok() && with(Some("a")).is_ok());
        let error = with(Some("b")).unwrap_err().to_string();
        assert!(error.contains("linux.sysctl.kernel.domainname is not the domainname"), "{error}");
    }

    #[test]
    fn what_belongs_to_no_namespace_is_refused() {
        for name in
            ["kernel.core_pattern", "kernel.hostname", "vm.swappiness", "fs.file-max", "kernel", "net", ""]
        {
            assert!(checked(&Namespace::ALL, name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_with_slashes_are_the_same_names() {
        let net = [Namespace::Network];
        assert_eq!(checked(&net, "net/ipv4/ip_forward").as_deref(), Ok("net.ipv4.ip_forward"));
        let dotted = Ok("net.ipv4.conf.eno2/100.rp_filter");
        assert_eq!(checked(&net, "net/ipv4/conf/eno2.100/rp_filter").as_deref(), dotted);
        assert_eq!(checked(&net, "net.ipv4.conf.eno2/100.rp_filter").as_deref(), dotted);
    }

    #[test]
    fn no_name_leads_out_of_its_directory() {
        for name in
            ["net/../kernel/core_pattern", "net.//.kernel.core_pattern", "net..x", "net/./x", "net/", "net."]
        {
            assert!(checked(&Namespace::ALL, name).unwrap_err().contains("is not the name"), "{name}");
        }
    }
}
