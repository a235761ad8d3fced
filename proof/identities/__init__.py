"""Every part on a broker that wants tokens, while their provider works, fails and comes back."""
