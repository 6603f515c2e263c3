//! The stream of messages inside the process.

use tokio::sync::broadcast;

use super::Message;

/// How many messages a slow subscriber may lag behind before it misses some.
const CAPACITY: usize = 1024;

/// Emits messages to all subscribers. Clones share the subscribers.
#[derive(Clone, Debug)]
pub struct Emitter(broadcast::Sender<Message>);

impl Default for Emitter {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Emitter {
    /// Emits a message to those who are subscribed now.
    pub fn emit(&self, message: Message) {
        // The only error is that there are no subscribers.
        let _ = self.0.send(message);
    }

    /// Receives all later messages.
    pub fn subscribe(&self) -> broadcast::Receiver<Message> {
        self.0.subscribe()
    }
}
