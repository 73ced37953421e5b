"""Where the files of a root lie: a folder of a local disk or an object store, and what each promises of its writes."""
