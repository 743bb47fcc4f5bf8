//! The store through its public face.
