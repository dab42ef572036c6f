use super::*;

fn limit<T>(value: T) -> Option<LimitSpec<T>> {
    Some(LimitSpec { value, required: true, origin: Origin::COMMAND_LINE })
}

fn all() -> LimitsSpec {
    LimitsSpec {
        memory: limit(64 << 20),
        memory_high: limit(32 << 20),
        swap: limit(8 << 20),
        hugetlb: vec![("2MB".parse().unwrap(), limit(4 << 20).unwrap())],
        cpu_milli: limit(1500),
        cpu_burst: limit(20_000),
        cpu_weight: limit(50),
        cpu_idle: limit(false),
        cpuset_cpus: limit("0-1".parse().unwrap()),
        cpuset_mems: limit("0".parse().unwrap()),
        io: vec![("4000:1".parse().unwrap(), "wbps", limit(1 << 20).unwrap())],
        io_weight: limit(1000),
        pids: limit(50),
        cpu_time: limit(1000),
        disk: None,
        inodes: None,
    }
}

/// Control files of which only the names are known.
struct Named<'a> {
    version: CgroupVersion,
    has: &'a dyn Fn(&str) -> bool,
}

impl ControlFiles for Named<'_> {
    fn version(&self, controller: &str) -> Option<CgroupVersion> {
        // In version 1 there is blkio.
        (controller != "io" || self.version == CgroupVersion::V2).then_some(self.version)
    }

    fn read(&self, _: &str, _: &str) -> Result<String, Errno> {
        Err(Errno::ENOENT)
    }

    fn write(&self, _: &str, _: &str, _: &str) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn path(&self, _: &str, file: &str) -> PathBuf {
        file.into()
    }

    fn has(&self, _: &str, file: &str) -> bool {
        (self.has)(file)
    }
}

fn lines(limits: &LimitsSpec, has: &dyn Fn(&str) -> bool) -> String {
    lines_of(limits, &Named { version: CgroupVersion::V2, has })
}

fn lines_of(limits: &LimitsSpec, tree: &dyn ControlFiles) -> String {
    let all = LimitRequests::new(limits, tree);
    let line = |(at, request): (RequestIndex, &LimitRequest)| {
        let write = |one: &CgroupSetting| {
            let tentative = if one.tentative { "try " } else { "" };
            format!("{tentative}{:?} to {}", one.value, one.file)
        };
        let writes = match &request.refused {
            None => all.writes_for(at).map(write).collect::<Vec<_>>().join(", "),
            Some(why) => why.clone(),
        };
        format!("{} = {} ({}): {writes}", request.name, request.value, request.controller)
    };
    all.list.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_limit_becomes_writes() {
    insta::assert_snapshot!(lines(&all(), &|file| file != "io.bfq.weight"), @r#"
    memory = 67108864 (memory): "67108864" to memory.max
    swap = 8388608 (memory): "8388608" to memory.swap.max
    memory_high = 33554432 (memory): "33554432" to memory.high
    cpu = 1.500 (cpu): "150000 100000" to cpu.max
    cpu_burst = 20000us (cpu): try "20000" to cpu.max.burst, "20000" to cpu.max.burst
    cpu_idle = false (cpu): "0" to cpu.idle
    cpu_weight = 50 (cpu): "50" to cpu.weight
    pids = 50 (pids): "50" to pids.max
    cpuset_cpus = 0-1 (cpuset): "0-1" to cpuset.cpus
    cpuset_mems = 0 (cpuset): "0" to cpuset.mems
    io = 4000:1 wbps=1048576 (io): no disk has the number 4000:1
    io_weight = 1000 (io): "1000" to io.weight
    cpu_time = 1000 (cgroup): 
    hugetlb = 2MB: 4194304 (hugetlb): "4194304" to hugetlb.2MB.max, "4194304" to hugetlb.2MB.rsvd.max
    "#);
}

/// What version 1 does not have is refused by name; the controllers that saggar uses only in version 2 have their writes
/// of it, for which no controller is found.
#[test]
fn version_1_has_other_files() {
    let limits = LimitsSpec { hugetlb: Vec::new(), io: Vec::new(), ..all() };
    let lines = |has: &dyn Fn(&str) -> bool| lines_of(&limits, &Named { version: CgroupVersion::V1, has });
    insta::assert_snapshot!(lines(&|_| true), @r#"
    memory = 67108864 (memory): "67108864" to memory.limit_in_bytes
    swap = 8388608 (memory): "75497472" to memory.memsw.limit_in_bytes
    memory_high = 33554432 (memory): version 1 of cgroups has no memory.high
    cpu = 1.500 (cpu): try "100000" to cpu.cfs_period_us, try "150000" to cpu.cfs_quota_us, "100000" to cpu.cfs_period_us, "150000" to cpu.cfs_quota_us
    cpu_burst = 20000us (cpu): try "20000" to cpu.cfs_burst_us, "20000" to cpu.cfs_burst_us
    cpu_idle = false (cpu): "0" to cpu.idle
    cpu_weight = 50 (cpu): "512" to cpu.shares
    pids = 50 (pids): "50" to pids.max
    cpuset_cpus = 0-1 (cpuset): "0-1" to cpuset.cpus
    cpuset_mems = 0 (cpuset): "0" to cpuset.mems
    io_weight = 1000 (io): "1000" to io.weight, "181" to io.bfq.weight
    cpu_time = 1000 (cgroup): 
    "#);
    let alone = LimitsSpec { memory: limit(1 << 20), ..LimitsSpec::default() };
    let tree = |has| Named { version: CgroupVersion::V1, has };
    insta::assert_snapshot!(lines_of(&alone, &tree(&|_| true)), @r#"memory = 1048576 (memory): "1048576" to memory.limit_in_bytes, "1048576" to memory.memsw.limit_in_bytes"#);
    insta::assert_snapshot!(lines_of(&alone, &tree(&|_| false)), @r#"memory = 1048576 (memory): "1048576" to memory.limit_in_bytes, "0" to memory.swappiness"#);
    let swap = LimitsSpec { swap: limit(1), ..alone };
    insta::assert_snapshot!(lines_of(&swap, &tree(&|_| false)), @r#"
    memory = 1048576 (memory): "1048576" to memory.limit_in_bytes
    swap = 1 (memory): this kernel has no memory.memsw.limit_in_bytes
    "#);
}

#[test]
fn memory_alone_has_no_swap_and_an_idle_sandbox_no_weight() {
    let limits = LimitsSpec {
        memory: limit(1 << 20),
        cpu_idle: limit(true),
        cpu_weight: limit(9),
        ..LimitsSpec::default()
    };
    insta::assert_snapshot!(lines(&limits, &|_| true), @r#"
    memory = 1048576 (memory): "1048576" to memory.max, "0" to memory.swap.max
    cpu_idle = true (cpu): "1" to cpu.idle
    "#);
}

#[test]
fn a_weight_for_disks_goes_to_bfq_too_on_its_own_scale() {
    for (weight, of_bfq) in [(1, 1), (100, 100), (10_000, 1000)] {
        let limits = LimitsSpec { io_weight: limit(weight), ..LimitsSpec::default() };
        let both = lines(&limits, &|_| true);
        assert!(
            both.ends_with(&format!("\"{weight}\" to io.weight, \"{of_bfq}\" to io.bfq.weight")),
            "{both}"
        );
    }
}
