"""The line to the broker that every client needs: requests out, replies and deliveries in, quotas, signs of life. No
JVM."""
