//! Weights of flows (their sizes) and of links (the sum over their flows).

/// The path and weight of each flow: the input of every assignment of rates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// w_f of each flow.
    weights: Vec<u64>,
    /// Links of all flows, concatenated.
    links: Vec<u32>,
    /// End of each flow's links in `links`.
    ends: Vec<u32>,
}

impl Paths {
    /// No flows.
    pub const fn new() -> Self {
        Self { weights: Vec::new(), links: Vec::new(), ends: Vec::new() }
    }

    /// Adds a flow of `weight` (its size, in any unit shared by all flows) over `links`. A link
    /// listed twice counts twice.
    pub fn push(&mut self, weight: u64, links: &[u32]) {
        self.weights.push(weight);
        self.links.extend_from_slice(links);
        self.ends.push(self.links.len() as u32);
    }

    /// Number of flows.
    pub const fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are no flows.
    pub const fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// w_f of a flow.
    pub fn weight(&self, flow: usize) -> u64 {
        self.weights[flow]
    }

    /// The links of a flow in order.
    pub fn links(&self, flow: usize) -> &[u32] {
        let from = flow.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.links[from as usize..self.ends[flow] as usize]
    }

    /// One more than the largest link number.
    pub fn links_end(&self) -> usize {
        self.links.iter().max().map_or(0, |l| *l as usize + 1)
    }
}

/// W_l of every link: the only state of the network, and none of it is per flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkWeights {
    of: Vec<u64>,
}

impl LinkWeights {
    /// `links` links without flows.
    pub fn new(links: usize) -> Self {
        Self { of: vec![0; links] }
    }

    /// The weights after every flow of `paths` was announced.
    pub fn of(paths: &Paths) -> Self {
        let mut all = Self::new(paths.links_end());
        (0..paths.len()).for_each(|f| all.add(paths.links(f), paths.weight(f)));
        all
    }

    /// Adds a flow.
    pub fn add(&mut self, links: &[u32], weight: u64) {
        for link in links {
            self.of[*link as usize] += weight;
        }
    }

    /// Removes a flow.
    ///
    /// # Panics
    /// If more is subtracted from a link than was added, for a flow that was never added.
    pub fn remove(&mut self, links: &[u32], weight: u64) {
        for link in links {
            let of = &mut self.of[*link as usize];
            *of = of.checked_sub(weight).expect("what is taken off was added");
        }
    }

    /// W_l of one link.
    pub fn get(&self, link: u32) -> u64 {
        self.of[link as usize]
    }

    /// W_f: the largest weight on a path.
    pub fn most_on(&self, links: &[u32]) -> u64 {
        links.iter().map(|l| self.of[*l as usize]).max().unwrap_or(0)
    }

    /// W: the largest weight of all.
    pub fn largest(&self) -> u64 {
        self.of.iter().copied().max().unwrap_or(0)
    }
}
