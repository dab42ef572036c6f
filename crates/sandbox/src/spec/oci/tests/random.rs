//! Random bytes, and random changes of valid documents: no panic, and every error names the field.

use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const GOOD: [&str; 5] = [
    include_str!("callers/docker.json"),
    include_str!("callers/podman.json"),
    include_str!("callers/podman-rootless.json"),
    include_str!("callers/buildah.json"),
    include_str!("callers/kubernetes.json"),
];

/// Any JSON, with many keys and numbers that are meaningful in a document.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(&[0i64, 1, -1, 7, 65536, i64::MAX, i64::MIN][..]).prop_map(Value::from),
        Just(json!(u64::MAX)),
        Just(json!(0.5)),
        select(
            &["", "/", "a", "/a", "a\0", "..", "rbind", "ro", "0-3,7", "%d", "net.a", "SCMP_ACT_NOTIFY"][..]
        )
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let keys =
            select(&["path", "type", "options", "size", "name", "a", "uid"][..]).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The JSON pointer of every value in a document.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            places(value, format!("{at}/{key}"), all)
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| places(item, format!("{at}/{index}"), all))
        }
        _ => {}
    }
    all.push(at);
}

/// A change of a document: a value is replaced, removed or duplicated.
#[derive(Debug, Clone)]
enum Change {
    Replace(Index, Value),
    Remove(Index),
    Double(Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), json()).prop_map(|(at, value)| Change::Replace(at, value)),
        any::<Index>().prop_map(Change::Remove),
        any::<Index>().prop_map(Change::Double),
    ]
}

fn apply(document: &mut Value, change: &Change) {
    let mut all = Vec::new();
    places(document, String::new(), &mut all);
    let (Change::Replace(at, _) | Change::Remove(at) | Change::Double(at)) = change;
    let place = &all[at.index(all.len())];
    let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
    let key = place.rsplit('/').next().unwrap_or("").replace("~1", "/").replace("~0", "~");
    match (change, document.pointer_mut(parent)) {
        (Change::Remove(_), Some(Value::Object(map))) => drop(map.remove(&key)),
        (Change::Remove(_), Some(Value::Array(items))) => drop(key.parse().map(|at: usize| items.remove(at))),
        (Change::Double(_), Some(Value::Array(items))) => {
            let item = key.parse().ok().and_then(|at: usize| items.get(at).cloned());
            items.extend(item)
        }
        (Change::Replace(_, value), _) => *document.pointer_mut(place).unwrap() = value.clone(),
        _ => {}
    }
}

proptest! {
    #[test]
    fn bytes_never_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse_config(bytes.clone(), Path::new("/bundle"));
        let container = changed(|_| {}).unwrap().container;
        let _ = parse_process(&bytes, &container);
        let _ = parse_resources(&bytes);
    }

    #[test]
    fn changed_documents_are_taken_or_refused_by_a_field(
        good in select(&GOOD[..]),
        changes in proptest::collection::vec(change(), 1..4),
    ) {
        let mut document: Value = serde_json::from_str(good).unwrap();
        changes.iter().for_each(|change| apply(&mut document, change));
        match parsed(&document) {
            Ok(config) => {
                // The same bytes give the same result.
                let again = parse_config(config.bytes.clone(), Path::new("/bundle")).unwrap();
                prop_assert_eq!(format!("{:?}", again.container.mounts), format!("{:?}", config.container.mounts));
                prop_assert!(config.container.root.path.is_absolute());
                prop_assert!(config.container.mounts.iter().all(|mount| mount.destination.is_absolute()));
                prop_assert!(config.container.devices.iter().all(|device| device.path.is_absolute()));
            }
            Err(error) => {
                let text = error.to_string();
                let rest = text.strip_prefix("config.json: ").unwrap_or("");
                prop_assert!(!rest.is_empty() && !rest.contains(char::is_control), "{text:?}");
            }
        }
    }

    #[test]
    fn overrides_never_make_it_panic(user in ".{0,12}", cap in ".{0,12}", env in ".{0,12}", cwd in ".{0,12}") {
        let container = changed(|_| {}).unwrap().container;
        let overrides = ExecOptions {
            args: vec!["a".into()], user: Some(user), capabilities: vec![cap], env: vec![env], cwd: Some(cwd),
            ..ExecOptions::default()
        };
        let _ = process_with_options(&container, &overrides);
    }
}
